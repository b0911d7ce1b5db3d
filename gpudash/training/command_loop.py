"""Obeys one dashboard: pauses, levers, blocks, profiles, stops. Each command gets one answer.

It works in turns between two steps: the training goes on when `turn` returns. A change that needs
a rehearsal waits for a step with a call of the model. Later commands wait behind it.

With several ranks, what is asked of all waits for the step that the command names. The ranks agree
on every switch, so no rank keeps a setting that another one refused.
"""

import math
import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from gpudash.instrument.life import OUTSIDE_BLOCKS, Life
from gpudash.instrument.memory_history import TRACED, MemoryHistory
from gpudash.instrument.profiler import NoProfile
from gpudash.instrument.reporter import REPORT_EVERY_S, Reports
from gpudash.protocol.commands import (
    AnyCommand,
    Block,
    Blocks,
    Change,
    Memory,
    Pause,
    Profile,
    Resume,
    Stop,
)
from gpudash.protocol.envelope import Event
from gpudash.protocol.records import Settings
from gpudash.protocol.training import BlocksEnded, RefusalKind, Refused, TooLate
from gpudash.training.block_queue import BlockQueue, difference
from gpudash.training.commanded import CommandedTraining, Return
from gpudash.training.decision_steps import CAME_LATE, DecisionSteps, Instruction, topic
from gpudash.training.levers import Refusal, phrase
from gpudash.training.tracing import Tracing
from gpudash.training.wall_clock import WallClock

GONE = "the dashboard is gone"
FAILED = "gpudash failed there"


class Line(Protocol):
    """The connection to the dashboard."""

    gone: bool
    """Whether the dashboard is gone."""

    def send(self, event: Event) -> None:
        """Send the event, without waiting for the reader."""

    def read(self) -> list[AnyCommand]:
        """Return the commands that have arrived."""

    def wait(self, timeout_s: float) -> object:
        """Sleep until a command has arrived, or until the timeout."""


class _Switch(NamedTuple):
    """Resolved settings that are about to become active."""

    wanted: Settings
    changes: Settings
    began_s: float
    command: Change | None = None
    leaves: str = ""
    """Why the run of blocks ends with this switch; empty: it does not."""
    after_step: int = 0
    """The switch waits for a step after this one."""
    topic: str = ""
    """The name of the ranks' decision; empty for a way back from blocks that needs none."""


class CommandLoop:
    """One dashboard, until none of its commands is in progress."""

    def __init__(
        self,
        line: Line,
        life: Life,
        training: CommandedTraining,
        reports: Reports,
        history: MemoryHistory,
    ) -> None:
        self._line = line
        self._life = life
        self._training = training
        self._reports = reports
        self._blocks = BlockQueue()
        self._history = history
        self._inbox: deque[AnyCommand] = deque()
        self._waiting: _Switch | None = None
        self._decisions = DecisionSteps(training, self._blocks)
        self._wall_clock = WallClock(training, reports, line.send)
        self._tracing: Tracing | None = None
        self._paused = False
        self._has_left = False
        self.stops: tuple[int, ...] = ()
        """Ids of the commands to stop, which the end of the training answers."""
        self.is_busy = self._history.is_on
        """Whether every border needs a `turn`."""
        self._is_in_block = False  # and nothing else is due before its end

    @property
    def paused(self) -> bool:
        """Whether the next step must wait."""
        return self._paused

    @property
    def is_tracing(self) -> bool:
        """Whether a profile is in progress."""
        return self._tracing is not None

    @property
    def is_over(self) -> bool:
        """Whether the dashboard has gone and nothing of it is in progress."""
        return self._has_left and not self.is_busy

    def read(self) -> None:
        """Read the commands that have arrived; end a profile that has lasted too long."""
        self._inbox += self._line.read()
        if self._tracing is not None and self._tracing.is_overdue:
            self._end_tracing(self._tracing)
        self._note_work()

    def rest(self) -> None:
        """Wait for the next command, at most until the next report is due."""
        self._line.wait(REPORT_EVERY_S)

    def turn(self) -> None:
        """Do everything due between two steps."""
        if self._is_in_block and not self._may_end_block() and not self._line.gone:
            return
        self._turn()
        self._note_work()

    def _note_work(self) -> None:
        waits = self._waiting is not None or self._tracing is not None or self._history.is_on
        is_asked = len(self._inbox) > 0 or self._paused
        self.is_busy = self._blocks.running or waits or is_asked
        # several ranks come to each decision prepared
        is_else_due = waits or is_asked or self._training.is_shared
        self._is_in_block = self._blocks.running and not is_else_due

    def _turn(self) -> None:
        if self._line.gone and not self._has_left:
            self._leave()
        if self._history.turn(self._training.step):
            self._training.interrupt()
        if self._tracing is not None and not self._trace_on(self._tracing):
            return
        if self._waiting is not None and self._training.step > self._waiting.after_step:
            switch, self._waiting = self._waiting, None
            self._enter(switch)
        self._obey_all()
        is_halted = self._waiting is not None or self.paused
        if self._blocks.running and not is_halted and self._may_end_block():
            self._turn_blocks()
        if self._training.is_shared:
            self._decisions.prepare(self._inbox)

    def notice(self, before: Settings) -> None:
        """Report settings that changed on their own since `before`, as with a new DataLoader."""
        changes = difference(before, self._training.levers.settings)
        if changes:
            self._training.begin_segment()
            self._report_change(changes)

    def ran_out(self, asked_bytes: int) -> None:
        """Note that a request for device memory fails."""
        self._history.ran_out(asked_bytes)

    def recover(self, refusal: Refusal, began_s: float) -> None:
        """Go back to settings that worked, because a step has failed with these."""
        if self._tracing is not None:
            self._drop_tracing(self._tracing, "the training ran out of memory")
        self._wall_clock.stop()
        went_back = self._training.put_back(self._training.settings, refusal, entered=False)
        assert went_back is not None, "a training whose steps fail knows what worked"
        self._go_back(went_back, began_s)
        self._note_work()

    def close(self) -> None:
        """End the profile and the time in progress: the training takes no more steps."""
        if self._tracing is not None:
            self._end_tracing(self._tracing)
        self._wall_clock.stop()

    def finish(self, why: str) -> tuple[int, ...]:
        """End the blocks; return the ids of the commands that have no answer yet."""
        if self._blocks.running:
            self._line.send(self._blocks.end(time.monotonic(), why))
        self._history.stop(why)
        self._inbox += self._line.read()
        return (*self.stops, *(command.id for command in self._inbox))

    def dismiss(self, why: str) -> None:
        """Answer all open commands: measuring ends, and nothing more will be obeyed."""
        commands = [*self._inbox]
        if self._waiting is not None and self._waiting.command is not None:
            commands.append(self._waiting.command)
        if self._tracing is not None:
            profile = self._tracing.command
            self._tracing.abandon()
            self._refuse(f"{why} before {profile.steps} steps were traced", profile)
            self._life.resume(time.monotonic())
        for command in commands:
            self._refuse(why, command)
        self._release_ranks(commands, why)
        if self._blocks.running:
            self._life.turn(time.monotonic(), **OUTSIDE_BLOCKS)
            self._line.send(self._blocks.end(time.monotonic(), why))
        self._history.report_shortage()
        self._history.stop(why)
        self._inbox.clear()
        self._waiting = self._tracing = None
        self._paused = False
        self._wall_clock.abandon()
        self._training.keep_calls(keep=False)
        self._note_work()

    def _leave(self) -> None:
        """Undo what serves only the dashboard, because it has gone."""
        self._has_left = True
        self._history.stop(GONE)
        self._release_ranks(self._inbox, GONE)
        self._inbox.clear()
        if self._paused:
            self._paused = False
            self._training.interrupt()
        if self._waiting is not None:
            self._waiting = None
            self._training.keep_calls(keep=False)
        if self._tracing is not None:
            self._tracing.abandon()
            self._measure_again()
        if self._blocks.running and not self._training.is_shared:  # ranks decide on that
            self._leave_blocks(GONE)

    def _release_ranks(self, commands: Iterable[AnyCommand], why: str) -> None:
        """Refuse the ranks' decisions on these commands, so that no rank waits for this one."""
        if self._training.is_shared:
            for command in commands:
                if self._decisions.is_for_all(command):
                    self._training.decide(topic(command), why)
            if self._blocks.running:
                self._training.decide(self._decisions.block_topic, why)

    # ── commands ────────────────────────────────────────────────────────────────────────

    def _obey_all(self) -> None:
        """Obey the commands in order of arrival.

        During a profile none is obeyed. While a change waits, only pauses are. A command for all
        ranks holds up later ones until its step.
        """
        is_held_up = False
        for command in list(self._inbox):
            its_turn = self._waiting is None or isinstance(command, Pause | Resume)
            is_early = self._decisions.is_early(command) and not self.paused
            is_held_up = is_held_up or self.is_tracing or is_early
            if is_held_up or not its_turn:
                continue
            if self._obey(command):
                self._inbox.remove(command)  # if obeying fails, `dismiss` still answers it
            else:
                is_held_up = isinstance(command, Profile)  # a Resume may be what it waits for

    def _obey(self, command: AnyCommand) -> bool:
        """Obey a command; return False if something else has to come first."""
        why_not = self._training.why_not(command)
        if why_not is not None:
            self._refuse(why_not, command)
            return True
        if self._decisions.is_late(command):
            self._decide(command, CAME_LATE, is_late=True)
            return True
        match command:
            case Change():
                self._change(command)
            case Blocks():
                return self._take_blocks(command)
            case Pause():
                self._pause(command)
            case Resume():
                self._resume(command)
            case Profile():
                return self._trace(command)
            case Memory():
                self._history.ask(command, self._training.step)
            case Stop():
                self._stop(command)
        return True

    def _pause(self, command: Pause) -> None:
        if self._decide(command):
            self._paused = True
            self._life.pause(time.monotonic(), self._training.step, answers=(command.id,))

    def _resume(self, command: Resume) -> None:
        if not self._decide(command):
            return
        if self._paused:
            self._paused = False
            self._training.interrupt()
            self._life.resume(time.monotonic(), (command.id,))
            # prefetched batches would distort the block
            self._begin_block()
        else:
            self._life.resume(time.monotonic(), (command.id,))

    def _stop(self, command: Stop) -> None:
        if self._decide(command):
            self.stops += (command.id,)

    def _change(self, command: Change) -> None:
        levers, began_s = self._training.levers, time.monotonic()
        changes, refusal = self._changes_back() | command.settings, None
        wanted = levers.settings
        try:
            wanted = levers.resolve(changes)
            if wanted == levers.settings and not self._blocks.running:
                refusal = f"{phrase(command.settings)}: nothing changes"
        except Refusal as error:
            refusal = str(error)
        if not self._decide(command, refusal):
            return
        leaves = "another change ended it" if self._blocks.running else ""
        entered = f"{topic(command)}.entered"
        self._switch(_Switch(wanted, changes, began_s, command, leaves, topic=entered))

    def _take_blocks(self, command: Blocks) -> bool:
        run, begins = self._blocks.run, self._blocks.begins(command)
        if begins and not self._decide(command):
            return True
        if run is not None and begins:
            self._leave_blocks("other blocks began")
            if self._waiting is not None:
                return False
        if not self._blocks.take_in(command, self._training.levers.settings):
            self._refuse("it had ended before", command)
        elif self._blocks.run != run:
            self._decisions.block_at = self._training.taken
        return True

    def _decide(
        self, command: AnyCommand, refusal: str | None = None, *, is_late: bool = False
    ) -> bool:
        """Return whether all ranks obey the command; if not, answer it."""
        decided = self._training.decide(topic(command), refusal, is_late=is_late)
        if decided.is_late:
            self._line.send(TooLate(answers=(command.id,)))
        elif decided.refusal is not None:
            self._refuse(decided.refusal, command)
        return decided.refusal is None

    def _refuse(
        self,
        reason: str,
        command: AnyCommand | None = None,
        kind: RefusalKind = "bad_setting",
        failed: Settings | None = None,
    ) -> None:
        """Refuse a command; without one, refuse what the block in progress or a step asked for."""
        block = self._blocks.current
        if isinstance(command, Blocks):
            now_s, answers = time.monotonic(), (command.id,)
            self._line.send(BlocksEnded(at_s=now_s, answers=answers, run=command.run, why=reason))
            return
        if isinstance(command, Profile):
            kind = "no_profile"
        asked = command.settings if isinstance(command, Change) else {}
        if command is None and block is not None:
            asked = block.changes
        refused = Refused(kind=kind, changes=asked if failed is None else failed, reason=reason)
        if command is not None:
            refused = replace(refused, answers=(command.id,))
        elif block is not None:
            refused = replace(refused, run=self._blocks.run, block=block.number)
        self._line.send(refused)

    # ── the life of the training ────────────────────────────────────────────────────────

    def _report_change(
        self,
        changes: Settings,
        began_s: float | None = None,
        answers: tuple[int, ...] = (),
        *,
        leaves: bool = False,
    ) -> None:
        """Report the settings that apply from now on; the run of blocks may end with them."""
        training, blocks, now_s, within = self._training, self._blocks, time.monotonic(), {}
        if blocks.running and not leaves:
            number = blocks.current.number if blocks.current else None
            within = {"run": blocks.run, "block": number, "baseline": dict(blocks.baseline)}
        self._life.turn(
            now_s,
            answers=answers,
            segment=training.segment,
            after_step=training.step,
            changes=changes,
            settings=dict(training.settings),
            requested=dict(training.requested),
            took_ms=0.0 if began_s is None else (now_s - began_s) * 1e3,
            warmup_steps=training.levers.warmup_steps,
            notes=training.notes,
            **(OUTSIDE_BLOCKS | within),
        )

    # ── a profile ───────────────────────────────────────────────────────────────────────

    def _trace(self, command: Profile) -> bool:
        """Begin a profile, which ends after its steps or at the next command.

        Return False if a step has to come first.
        """
        if self._blocks.running or self.paused:
            why = "the training is paused" if self.paused else "an A/B is running"
            self._refuse(f"{why}: profile it afterwards", command)
            return True
        if not self._training.is_filled:
            return False
        self._history.stop(TRACED)
        self._training.synchronize()
        self._reports.send()
        began_s = time.monotonic()
        try:
            self._tracing = Tracing(self._training, command, self._reports.step_ms)
        except NoProfile as why_not:
            self._refuse(str(why_not), command)
            return True
        self._training.interrupt()
        self._life.pause(began_s, self._training.step, "profile")
        return True

    def _trace_on(self, tracing: Tracing) -> bool:
        """Note that a step is over; return whether the profile is."""
        try:
            if not tracing.border(is_last=len(self._inbox) > 0):
                return False
        except NoProfile as why_not:
            self._drop_tracing(tracing, str(why_not))
        else:
            self._end_tracing(tracing)
        return True

    def _end_tracing(self, tracing: Tracing) -> None:
        """Send the profile, or why there is none."""
        try:
            self._line.send(tracing.end())
        except NoProfile as why_not:
            self._refuse(str(why_not), tracing.command)
        self._measure_again()

    def _drop_tracing(self, tracing: Tracing, why: str) -> None:
        """Refuse the profile in progress."""
        tracing.abandon()
        self._refuse(why, tracing.command)
        self._measure_again()

    def _measure_again(self) -> None:
        """Measure again; the traced steps count in no rate."""
        self._tracing = None
        self._reports.set_aside()
        self._training.profiled()
        self._training.interrupt()
        self._life.resume(time.monotonic())

    # ── blocks ──────────────────────────────────────────────────────────────────────────

    def _may_end_block(self) -> bool:
        """Return whether the block in progress is over; of several ranks, whether they decide."""
        training = self._training
        is_over = self._blocks.is_over(training.taken, time.monotonic())
        return training.taken >= self._decisions.block_at if training.is_shared else is_over

    def _turn_blocks(self) -> None:
        """Go to the next block once the one in progress has lasted long enough."""
        blocks, training = self._blocks, self._training
        began_s, lasted = time.monotonic(), blocks.current
        is_over = blocks.is_over(training.taken, began_s)
        self._decisions.note_pace(began_s)
        is_late = training.taken > self._decisions.block_at
        why = GONE if self._has_left else CAME_LATE if is_late else None
        plan = ""
        if training.speaks:
            plan = self._decisions.instruction(began_s, is_over=is_over).encode()
        decided = training.decide(
            self._decisions.block_topic, why if training.is_shared else None, plan
        )
        if decided.refusal is not None:
            self._leave_blocks(decided.refusal)
            return
        instruction = Instruction.decode(decided.payload)
        if instruction.decide_at:
            self._decisions.block_at = instruction.decide_at
            return
        self._wall_clock.read(lasted)
        self._wall_clock.stop()
        blocks.current = instruction.begin
        if instruction.begin is None:
            self._leave_blocks(instruction.ends)
        else:
            self._enter_block(instruction.begin, began_s)

    def _enter_block(self, block: Block, began_s: float) -> None:
        """Begin the block on all ranks."""
        levers, decision = self._training.levers, f"{self._decisions.block_topic}.begin"
        try:
            wanted = levers.resolve(self._blocks.baseline | block.changes)
        except Refusal as error:
            self._training.decide(decision, str(error))
            self._refuse(str(error))
            self._end_block()
            return
        changes = difference(levers.settings, wanted)
        self._switch(_Switch(wanted, changes, began_s, topic=decision))

    def _leave_blocks(self, why: str) -> None:
        """Go back to the settings from before the blocks."""
        self._blocks.current = None
        began_s, decision = time.monotonic(), f"{self._decisions.block_topic}.back"
        self._switch(
            _Switch(
                self._blocks.baseline,
                self._changes_back(),
                began_s,
                leaves=why,
                topic=decision if self._training.votes_on_way_back else "",
            )
        )

    def _changes_back(self) -> Settings:
        """Return the changes back to the settings from before the blocks; empty without blocks."""
        running, settings = self._blocks.running, self._training.levers.settings
        return difference(settings, self._blocks.baseline) if running else {}

    def _begin_block(self) -> None:
        levers, block = self._training.levers, self._blocks.current
        self._blocks.entered(self._training.step, levers.warmup_steps, levers.burst_steps)
        # a block ends with a whole burst of batches, whose end must be seen
        whole = block is not None and levers.burst_steps > 1
        self._training.look_closely(math.inf if whole else levers.warmup_steps + 1)
        self._wall_clock.stop()
        if block is not None and block.wall_clock is not None:
            self._wall_clock.start(block)

    def _end_block(self) -> None:
        """Have the next block begin at the next border."""
        self._blocks.current = None
        self._decisions.block_at = self._training.taken + 1

    # ── settings ────────────────────────────────────────────────────────────────────────

    def _switch(self, switch: _Switch) -> None:
        """Make the settings active now, or after a step if a rehearsal needs a call."""
        self._wall_clock.stop()
        shared = self._training.is_shared  # several ranks kept a call at the step before
        if not shared and self._training.levers.needs_call(switch.wanted):
            self._training.keep_calls(keep=True)
            self._training.look_closely(2)
            self._waiting = switch._replace(after_step=self._training.step)
        else:
            self._enter(switch)

    def _enter(self, switch: _Switch) -> None:
        began_s = time.monotonic() if switch.after_step else switch.began_s  # training went on
        training, command = self._training, switch.command
        refusal = self._try(switch)
        if isinstance(refusal, Return):
            self._go_back(refusal, began_s, command, leaves=bool(switch.leaves))
        elif refusal is not None and (command is not None or not switch.leaves):
            self._refuse(refusal, command)
            self._go_on_after_refusal(switch)
            return
        else:
            if refusal is not None:
                training.levers.restore()  # always possible
                training.requested = {}
            if switch.leaves:
                self._blocks.current = None
            if command is not None:
                training.requested = training.requested | command.settings
            training.begin_segment()
            answers = () if command is None else (command.id,)
            self._report_change(switch.changes, began_s, answers, leaves=bool(switch.leaves))
            self._begin_block()
        if switch.leaves:
            self._line.send(self._blocks.end(time.monotonic(), switch.leaves))

    def _try(self, switch: _Switch) -> Return | str | None:
        """Make the settings active; return why this rank or another one refuses."""
        training, before = self._training, self._training.levers.settings
        refusal: Refusal | None = None
        try:
            training.enter(
                switch.wanted, stays=switch.command is not None and not self._blocks.running
            )
        except Refusal as error:
            refusal = error
        except BaseException:  # measuring ends here, and no rank must wait for this one
            if switch.topic:
                training.decide(switch.topic, FAILED)
            raise
        finally:
            training.keep_calls(keep=False)
        why = None if refusal is None else str(refusal)
        if switch.topic:
            is_block = switch.command is None
            plan = self._decisions.planned_from_here() if is_block and refusal is None else ""
            decided = training.decide(switch.topic, why, plan)
            why = decided.refusal
            if why is None and is_block:
                self._decisions.block_at = int(decided.payload)
        if why is None:
            return None
        went_back = training.put_back(before, refusal or Refusal(why), entered=refusal is None)
        return went_back or why

    def _go_back(
        self,
        went_back: Return,
        began_s: float,
        command: Change | None = None,
        *,
        leaves: bool = False,
    ) -> None:
        """Report that the training went back to settings that worked; a block ends with that."""
        self._refuse(went_back.reason, command, went_back.kind, went_back.failed)
        self._end_block()
        self._training.begin_segment()
        self._report_change(went_back.restored, began_s, leaves=leaves)
        self._begin_block()

    def _go_on_after_refusal(self, switch: _Switch) -> None:
        """Go on as before the refused switch; if it was a block, go to the next one."""
        if switch.command is None:
            self._end_block()
        self._begin_block()
