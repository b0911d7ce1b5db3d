"""Obeys one dashboard: pauses, levers, blocks, profiles. Each command gets one answer.

It works like the worker's loop, but in turns between two steps: the script goes on when `turn`
returns. A change that needs a rehearsal waits for a step with a call of the model. Later commands
wait behind it.

With several ranks, changes and runs of blocks wait for the step that the command names. The ranks
agree on every switch, so no rank keeps a setting that another one refused.
"""

import math
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from gpudash.hooks.decision_steps import CAME_LATE, DecisionSteps, Instruction, due, topic
from gpudash.hooks.levers import Refusal
from gpudash.hooks.tracing import Tracing
from gpudash.hooks.training import Training, rank
from gpudash.hooks.wall_clock import WallClock
from gpudash.instrument.block_queue import BlockQueue, difference
from gpudash.instrument.endpoint import Line
from gpudash.instrument.life import OUTSIDE_BLOCKS, Life
from gpudash.instrument.memory_history import TRACED, MemoryHistory
from gpudash.instrument.profiler import NoProfile
from gpudash.instrument.reporter import REPORT_EVERY_S, Reports
from gpudash.protocol import (
    AnyCommand,
    Block,
    Blocks,
    BlocksEnded,
    Change,
    Memory,
    Pause,
    Profile,
    RefusalKind,
    Refused,
    Resume,
    Settings,
    Stop,
    TooLate,
)

GONE = "the dashboard is gone"
FAILED = "gpudash failed there"
NO_STOP = "a script of your own ends by itself or by a signal, not at a step"


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
    """The name of the ranks' decision; empty for the way back from blocks, which needs none."""


class Watch:
    """One dashboard, until none of its commands is in progress."""

    def __init__(self, line: Line, life: Life, training: Training, reports: Reports) -> None:
        self._line = line
        self._life = life
        self._training = training
        self._reports = reports
        self._blocks = BlockQueue()
        self._history = MemoryHistory(training.found.device, training.owned, line.send)
        self._inbox: deque[AnyCommand] = deque()
        self._waiting: _Switch | None = None
        self._decisions = DecisionSteps(training, self._blocks)
        self._wall_clock = WallClock(training, reports, line.send)
        self._tracing: Tracing | None = None
        self._paused = False
        self._has_left = False

    @property
    def paused(self) -> bool:
        """Whether the next step must wait."""
        return self._paused

    @property
    def is_busy(self) -> bool:
        """Whether every border needs a `turn`."""
        waits = self._waiting is not None or self._tracing is not None or self._history.is_on
        return self._blocks.running or waits or len(self._inbox) > 0

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

    def rest(self) -> None:
        """Wait for the next command, at most until the next report is due."""
        self._line.wait(REPORT_EVERY_S)

    def turn(self) -> None:
        """Do everything due between two steps."""
        if self._line.gone and not self._has_left:
            self._leave()
        if self._history.turn(self._training.step):
            self._training.tracker.interrupt()
        if self._tracing is not None and not self._trace_on(self._tracing):
            return
        if self._waiting is not None and self._training.step > self._waiting.after_step:
            switch, self._waiting = self._waiting, None
            self._enter(switch)
        self._obey_all()
        if self._blocks.running and self._waiting is None and not self.paused:
            self._turn_blocks()
        if self._training.is_shared:
            self._decisions.prepare(self._inbox)

    def notice(self, before: Settings) -> None:
        """Report settings that changed on their own since `before`, as with a new DataLoader."""
        changes = difference(before, self._training.levers.settings)
        if changes:
            self._training.begin_segment()
            self._report(changes, time.monotonic())

    def ran_out(self, asked_bytes: int) -> None:
        """Note that a request for device memory fails."""
        self._history.ran_out(asked_bytes)

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

    def _leave(self) -> None:
        """Undo what serves only the dashboard, because it has gone."""
        self._has_left = True
        self._history.stop(GONE)
        self._release_ranks(self._inbox, GONE)
        self._inbox.clear()
        if self._paused:
            self._paused = False
            self._training.tracker.interrupt()
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
                if due(command) is not None:
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
            is_held_up = is_held_up or self.is_tracing or self._decisions.is_early(command)
            if not is_held_up and its_turn and self._obey(command):
                self._inbox.remove(command)  # if obeying fails, `dismiss` still answers it

    def _obey(self, command: AnyCommand) -> bool:
        """Obey a command; return False if another switch has to come first."""
        if self._decisions.is_late(command):
            self._decide(command, CAME_LATE, is_late=True)
            return True
        match command:
            case Change():
                self._change(command)
            case Blocks():
                return self._take_blocks(command)
            case Pause() if self._training.is_shared:
                self._refuse("the other processes would wait for this one, and give up", command)
            case Pause():
                self._pause(command)
            case Resume():
                self._resume(command)
            case Profile():
                self._trace(command)
            case Memory():
                self._history.ask(command, self._training.step)
            case Stop():
                self._refuse(NO_STOP, command)
        return True

    def _pause(self, command: Pause) -> None:
        self._paused = True
        self._life.pause(time.monotonic(), self._training.step, answers=(command.id,))

    def _resume(self, command: Resume) -> None:
        if self._paused:
            self._paused = False
            self._training.tracker.interrupt()
            # prefetched batches would distort the block
            self._begin_block()
        self._life.resume(time.monotonic(), (command.id,))

    def _change(self, command: Change) -> None:
        levers, began_s = self._training.levers, time.monotonic()
        changes, refusal = self._changes_back() | command.settings, None
        wanted = levers.settings
        try:
            wanted = levers.resolve(changes)
            if wanted == levers.settings and not self._blocks.running:
                refusal = f"{_phrase(command.settings)}: nothing changes"
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
            self._decisions.block_at = self._training.step
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

    def _refuse(self, reason: str, command: AnyCommand | None = None) -> None:
        """Refuse a command; without one, refuse the block in progress."""
        block = self._blocks.current
        if isinstance(command, Blocks):
            now_s, answers = time.monotonic(), (command.id,)
            self._line.send(BlocksEnded(at_s=now_s, answers=answers, run=command.run, why=reason))
            return
        if command is not None:
            changes = command.settings if isinstance(command, Change) else {}
            kind: RefusalKind = "no_profile" if isinstance(command, Profile) else "bad_setting"
            refused = Refused(answers=(command.id,), kind=kind, changes=changes, reason=reason)
        else:
            assert block is not None
            refused = Refused(
                kind="bad_setting",
                changes=block.changes,
                reason=reason,
                run=self._blocks.run,
                block=block.number,
            )
        self._line.send(refused)

    # ── a profile ───────────────────────────────────────────────────────────────────────

    def _trace(self, command: Profile) -> None:
        """Begin a profile, which ends after its steps or at the next command."""
        if self._blocks.running or self.paused:
            why = "the training is paused" if self.paused else "an A/B is running"
            self._refuse(f"{why}: profile it afterwards", command)
            return
        self._history.stop(TRACED)
        self._training.synchronize()
        self._reports.send()
        began_s = time.monotonic()
        try:
            self._tracing = Tracing(self._training, command, self._reports.step_ms)
        except NoProfile as why_not:
            self._refuse(str(why_not), command)
            return
        self._training.tracker.interrupt()
        self._life.pause(began_s, self._training.step, "profile")

    def _trace_on(self, tracing: Tracing) -> bool:
        """Note that a step is over; return whether the profile is."""
        try:
            if not tracing.border(is_last=len(self._inbox) > 0):
                return False
        except NoProfile as why_not:
            tracing.abandon()
            self._refuse(str(why_not), tracing.command)
            self._measure_again()
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

    def _measure_again(self) -> None:
        """Measure again; the traced steps count in no rate."""
        self._tracing = None
        self._reports.set_aside()
        self._training.tracker.interrupt()
        self._life.resume(time.monotonic())

    # ── blocks ──────────────────────────────────────────────────────────────────────────

    def _turn_blocks(self) -> None:
        """Go to the next block once the one in progress has lasted long enough."""
        blocks, training = self._blocks, self._training
        began_s, lasted = time.monotonic(), blocks.current
        is_over = blocks.is_over(training.step, began_s)
        if training.step < self._decisions.block_at if training.is_shared else not is_over:
            return
        self._decisions.note_pace(began_s)
        is_late = training.step > self._decisions.block_at
        why = GONE if self._has_left else CAME_LATE if is_late else None
        speaks = rank() == 0 or not training.is_shared
        payload = self._decisions.instruction(began_s, is_over=is_over).encode() if speaks else ""
        decided = training.decide(
            self._decisions.block_topic, why if training.is_shared else None, payload
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
            self._blocks.current = None
            self._decisions.block_at = self._training.step + 1
            return
        changes = difference(levers.settings, wanted)
        self._switch(_Switch(wanted, changes, began_s, topic=decision))

    def _leave_blocks(self, why: str) -> None:
        """Go back to the settings from before the blocks."""
        self._blocks.current = None
        switch = _Switch(self._blocks.baseline, self._changes_back(), time.monotonic(), leaves=why)
        self._switch(switch)

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

    # ── settings ────────────────────────────────────────────────────────────────────────

    def _switch(self, switch: _Switch) -> None:
        """Make the settings active now, or after a step if a rehearsal needs a call."""
        shared = self._training.is_shared  # several ranks kept a call at the step before
        if not shared and self._training.levers.needs_call(switch.wanted):
            self._wall_clock.stop()
            self._training.keep_calls(keep=True)
            self._training.look_closely(2)
            self._waiting = switch._replace(after_step=self._training.step)
        else:
            self._enter(switch)

    def _enter(self, switch: _Switch) -> None:
        began_s = time.monotonic() if switch.after_step else switch.began_s  # training went on
        training, blocks = self._training, self._blocks
        refusal = self._try(switch)
        if refusal is not None:
            if switch.command is not None or not switch.leaves:
                self._refuse(refusal, switch.command)
                self._go_on_after_refusal(switch)
                return
            training.levers.restore()  # always possible
            training.requested = {}
        if switch.leaves:
            blocks.current = None
        training.begin_segment()
        self._report_change(switch, began_s)
        self._begin_block()
        if switch.leaves:
            self._line.send(blocks.end(time.monotonic(), switch.leaves))

    def _try(self, switch: _Switch) -> str | None:
        """Make the settings active; return why this rank or another one refuses."""
        training, before, refusal = self._training, self._training.levers.settings, None
        try:
            training.levers.enter(switch.wanted)
        except Refusal as error:
            refusal = str(error)
        except BaseException:  # measuring ends here, and no rank must wait for this one
            if switch.topic:
                training.decide(switch.topic, FAILED)
            raise
        finally:
            training.keep_calls(keep=False)
        if not switch.topic:
            return refusal
        is_block = switch.command is None
        plan = self._decisions.planned_from_here() if is_block and refusal is None else ""
        decided = training.decide(switch.topic, refusal, plan)
        if decided.refusal is not None and refusal is None:
            self._put_back(before)
        elif decided.refusal is None and is_block:
            self._decisions.block_at = int(decided.payload)
        return decided.refusal

    def _put_back(self, before: Settings) -> None:
        try:
            self._training.levers.enter(before)
        except Refusal:
            self._training.levers.restore()
            self._training.requested = {}

    def _go_on_after_refusal(self, switch: _Switch) -> None:
        """Go on as before the refused switch; if it was a block, go to the next one."""
        if switch.command is None:
            self._blocks.current = None
            self._decisions.block_at = self._training.step + 1
        self._begin_block()

    def _report_change(self, switch: _Switch, began_s: float) -> None:
        answers: tuple[int, ...] = ()
        if switch.command is not None:
            answers = (switch.command.id,)
            self._training.requested |= switch.command.settings
        now_s, blocks, within = time.monotonic(), self._blocks, OUTSIDE_BLOCKS
        if blocks.running and not answers and not switch.leaves:
            number = blocks.current.number if blocks.current else None
            within = {"run": blocks.run, "block": number, "baseline": dict(blocks.baseline)}
        took_ms = (now_s - began_s) * 1e3
        self._report(switch.changes, now_s, answers=answers, took_ms=took_ms, **within)

    def _report(self, changes: Settings, now_s: float, **more: Any) -> None:
        training = self._training
        self._life.turn(
            now_s,
            segment=training.segment,
            after_step=training.step,
            changes=changes,
            settings=dict(training.settings),
            requested=dict(training.requested),
            warmup_steps=training.levers.warmup_steps,
            **({"took_ms": 0.0} | more),
        )


def _phrase(settings: Settings) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())
