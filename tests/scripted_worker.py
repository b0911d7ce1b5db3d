"""A worker that runs blocks as worker/loop.py does, over the real BlockQueue and no device.

Its clock is made up, its steps last what `step_ms` says of the settings, and the device is
`behind` steps late: a block's state arrives before the last steps of the one before.
"""

import itertools
import shutil
from pathlib import Path

from gpudash.instrument.state_sender import OUTSIDE_BLOCKS, StateSender
from gpudash.protocol.commands import Blocks, Change, Pause, Profile, Rehearse, Resume
from gpudash.protocol.inspections import Profiled, Rehearsed
from gpudash.protocol.training import BlocksEnded, Progress, Refused, State, Step
from gpudash.ranks.normalise import Normaliser
from gpudash.statistics import total
from gpudash.training.block_queue import BlockQueue
from tests.scripted_run import BEGAN_S, started

WARMUP = 2
WARMUP_MS = 1000.0
PROFILE_S = 1 / 16
TRACE = Path(__file__).parent / "trace" / "h200_pipelined.json.gz"
LAST_MS = 0.001
"""What must not be counted lasts so long, or so short, that it would show."""


class Worker:
    """Turn it, and collect what it has sent."""

    def __init__(self, step_ms=lambda settings: 50.0, behind=3, refuses=None, too_big=None):
        self.step_ms = step_ms
        self.behind = behind
        self.refuses = refuses or (lambda settings: None)
        self.too_big = too_big or (lambda settings: False)
        self.settings = {"pipelined": "off", "batch_size": "8", "num_workers": "2"}
        self.proven = dict(self.settings)
        self.now_s = BEGAN_S
        self.blocks = BlockQueue()
        self.segment = 0
        self.trained = 0
        self.samples_reported = 0
        self.warm_from = 0
        self.waiting = []  # steps enqueued and not finished
        self.sent = []
        self.began = []  # numbers of the blocks, in order
        self.paused = False
        self.host_ms = lambda step_ms: 2.0
        self.samples = lambda settings: int(settings["batch_size"])
        self.grows_ms = lambda slow: 0.0  # how much longer a step is when a part is slowed
        self.cannot_slow = lambda slow: None
        self.skipped = 0  # samples that could not be read
        self.first_loss = None  # of a step, by its number
        self.stops = ()  # commands that asked for the end
        self.begin(started(self.now_s, dict(self.settings)))

    def start(self) -> State:
        return self.life.state

    def begin(self, state: State) -> State:
        """The first state, which is not sent but returned."""
        self.life = StateSender(state, self.tell)
        self.sent.pop()
        return state

    def tell(self, event) -> None:
        self.sent.append(event)

    def obey(self, command):
        match command:
            case Blocks():
                if self.blocks.running and command.run > self.blocks.run:
                    self.leave_blocks("other blocks began")
                if not self.blocks.take_in(command, self.settings):
                    answers = (command.id,)
                    ended = BlocksEnded(
                        at_s=self.now_s, answers=answers, run=command.run, why="it had ended before"
                    )
                    self.sent.append(ended)
            case Change():
                self.blocks.current = None
                self.switch(command.settings, answers=(command.id,), leaves=True)
                if self.blocks.running:
                    self.sent.append(self.blocks.end(self.now_s, "another change ended it"))
            case Pause():
                self.stand((command.id,))
            case Resume():
                self.paused = False
                self.blocks.entered(self.trained, WARMUP)
                self.life.resume(self.now_s, (command.id,))
            case Profile():
                self.profile(command, PROFILE_S)
            case Rehearse():
                self.sent.append(Rehearsed(answers=(command.id,), at_s=self.now_s))

    def stand(self, answers=()):
        self.paused = True
        self.life.pause(self.now_s, self.trained, answers=answers)

    def profile(self, command, lasts_s):
        """Tell of a profile, always the same; its steps are not counted."""
        shutil.copyfile(TRACE, command.path)
        began_s = self.now_s
        self.now_s += lasts_s
        profiled = Profiled(
            at_s=self.now_s,
            answers=(command.id,),
            path=command.path,
            first_step=self.trained + 1,
            steps=command.steps,
            steps_ms=1e3 * lasts_s,
            took_ms=1.0,
        )
        self.life.pause(began_s, self.trained, "profile")
        self.sent.append(profiled)
        self.life.resume(self.now_s)

    def leave_blocks(self, why):
        self.blocks.current = None
        self.switch(self.blocks.baseline, leaves=True)
        self.sent.append(self.blocks.end(self.now_s, why))

    def turn(self):
        """One turn of the loop: the next block if it is time, a step, a report."""
        if not self.paused:
            self.turn_blocks()
            if self.too_big(self.settings):
                self.retreat()
            else:
                self.iterate()
        self.report(self.behind)

    def turn_blocks(self):
        blocks = self.blocks
        if not blocks.running or not blocks.is_over(self.trained, self.now_s):
            return
        block = blocks.take()
        if block is None:
            self.leave_blocks("no block is left")
            return
        wanted = blocks.baseline | block.changes
        slow = block.slow
        if reason := self.refuses(wanted) or (slow and self.cannot_slow(slow)):
            self.refuse("bad_setting", block.changes, reason)
            blocks.current = None
            return
        self.began.append(block.number)
        self.switch(wanted)
        if block.waits:
            self.stand()

    def switch(self, settings, answers=(), *, leaves=False):
        self.iterate(LAST_MS)  # drained: nothing runs beside it
        before, self.settings = self.settings, self.settings | settings
        self.segment += 1
        self.warm_from = self.trained + WARMUP
        self.blocks.entered(self.trained, WARMUP)
        within = OUTSIDE_BLOCKS
        if self.blocks.running and not leaves:
            number = self.blocks.current.number if self.blocks.current else None
            baseline = dict(self.blocks.baseline)
            within = {"run": self.blocks.run, "block": number, "baseline": baseline}
        self.life.turn(
            self.now_s,
            answers=answers,
            segment=self.segment,
            after_step=self.trained,
            changes={k: v for k, v in self.settings.items() if before.get(k) != v},
            settings=dict(self.settings),
            took_ms=0.5,
            warmup_steps=WARMUP,
            requested=dict(self.settings),
            **within,
        )

    def retreat(self):
        failed = self.settings
        self.refuse("out_of_memory", failed, f"out of memory with {failed}")
        self.blocks.current = None
        self.switch(self.proven)

    def refuse(self, kind, changes, reason):
        block = self.blocks.current
        self.sent.append(
            Refused(
                kind=kind,
                changes=changes,
                reason=reason,
                run=self.blocks.run if block else None,
                block=block.number if block else None,
            )
        )

    def iterate(self, step_ms=None):
        self.trained += 1
        warming_up = self.trained <= self.warm_from
        block = self.blocks.current
        grows_ms = self.grows_ms(block.slow) if block is not None and block.slow else 0.0
        usual_ms = self.step_ms(self.settings) + grows_ms
        step_ms = step_ms or (WARMUP_MS if warming_up else usual_ms)
        self.now_s += step_ms / 1e3
        self.waiting.append(
            Step(
                step=self.trained,
                segment=self.segment,
                samples=self.samples(self.settings),
                finished_s=self.now_s,
                step_ms=step_ms,
                values={"data_ms": 0.1, "host_ms": self.host_ms(step_ms)},
            )
        )

    def report(self, behind=0):
        done = self.waiting[: max(len(self.waiting) - behind, 0)]
        self.waiting = self.waiting[len(done) :]
        if done and done[-1].segment == self.segment:
            self.proven = dict(self.settings)
        self.samples_reported = total((self.samples_reported, *(one.samples for one in done)))
        self.sent.append(
            Progress(
                until_s=self.now_s,
                steps=tuple(done),
                total_steps=self.trained - len(self.waiting),
                total_samples=self.samples_reported,
                skipped_samples=self.skipped,
                first_losses=tuple(
                    (one.step, self.first_loss(one.step)) for one in done if self.first_loss
                ),
            )
        )

    def finish(self):
        self.report()
        if self.blocks.running:
            self.sent.append(self.blocks.end(self.now_s, "the training ended"))
        end = {"phase": "finished", "why": None, "after_step": self.trained}
        self.life.turn(self.now_s, answers=self.stops, **end, **OUTSIDE_BLOCKS)

    def take(self):
        sent, self.sent = self.sent, []
        return sent


class Conducted:
    """An experiment and its worker, as the session connects them; commands arrive late."""

    def __init__(self, experiment, worker, run=0, delay=0):
        self.experiment = experiment
        self.worker = worker
        self.delay = delay
        self.number = run
        self.normaliser = Normaliser()
        self.commands = []  # blocks sent after the first
        self.results = []  # what else `fold` returned
        self._underway = []
        self._turns = itertools.count()
        self._ids = itertools.count()
        self.send(experiment.begin(self.normaliser.stamp(worker.start()), run))

    def send(self, blocks):
        command = Blocks(id=next(self._ids), run=self.number, blocks=blocks)
        self._underway.append((next(self._turns) + self.delay, command))

    def turn(self, turns=1):
        for _ in range(turns):
            now = next(self._turns)
            while self._underway and self._underway[0][0] < now:
                self.worker.obey(self._underway.pop(0)[1])
            self.worker.turn()
            for record in self.worker.take():
                self.tell(record)

    def tell(self, record):
        blocks = self.experiment.fold(self.normaliser.stamp(record))
        if blocks is not None:
            self.commands.append(blocks)
            self.send(blocks)

    def run(self, most=20_000):
        """Turn until the experiment is done."""
        for _ in range(most):
            if self.experiment.done:
                return self
            self.turn()
        raise AssertionError("it never ends")
