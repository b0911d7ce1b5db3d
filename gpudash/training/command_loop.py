"""Obeys one dashboard in turns between two steps. Each command gets one answer.

A change that needs a rehearsal waits for a step with a call of the model. Later commands wait
behind it. Ranks agree on every switch, so none keeps a setting that another one refused.
"""

import time
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from ..instrument import loader_workers
from ..instrument.memory_history import MemoryHistory
from ..instrument.reporter import REPORT_EVERY_S, Reports
from ..instrument.state_sender import OUTSIDE_BLOCKS, StateSender
from ..protocol.commands import (
    AnyCommand,
    Blocks,
    Change,
    CommandOrFigures,
    Figures,
    Memory,
    Pause,
    Profile,
    Rehearse,
    Resume,
    Stop,
)
from ..protocol.envelope import Event
from ..protocol.records import Settings
from ..protocol.training import TooLate
from .block_queue import BlockQueue
from .block_run import BlockRun
from .commanded import CommandedTraining, Refusal, Replies, phrase
from .decision_steps import CAME_LATE, DecisionSteps, topic
from .rehearsing import Rehearsing
from .switching import PlannedSwitch, Switching
from .tracing import Profiling
from .wall_clock import WallClock
from .wandb_run import LAST_S, WandbRun

GONE = "the dashboard is gone"


class _DashboardLine(Protocol):
    """The connection to the dashboard."""

    gone: bool
    """Whether the dashboard is gone."""

    def send(self, event: Event) -> None:
        """Do not wait for the reader."""

    def read(self) -> list[CommandOrFigures]: ...

    def wait(self, timeout_s: float) -> object: ...


class CommandLoop:
    """One dashboard, until none of its commands is in progress."""

    def __init__(
        self,
        line: _DashboardLine,
        life: StateSender,
        training: CommandedTraining,
        reports: Reports,
        history: MemoryHistory,
    ) -> None:
        self._line = line
        self._life = life
        self._training = training
        self._history = history
        self._inbox: deque[AnyCommand] = deque()
        self._blocks = blocks = BlockQueue()
        self._decisions = decisions = DecisionSteps(training, blocks)
        self._wall_clock = wall_clock = WallClock(training, reports, line.send)
        self._replies = replies = Replies(line.send, blocks)
        self._wandb = WandbRun(line.send)
        self._profiling = Profiling(training, life, reports, history, replies)
        self._switching = Switching(training, life, blocks, decisions, wall_clock, replies)
        self._run = BlockRun(training, blocks, decisions, self._switching, wall_clock, replies)
        self._rehearsing = Rehearsing(training, life)
        self._may_end_block = self._run.may_end_block  # looked at after each step of a block
        self._paused = False
        self._has_left = False
        self.stops: tuple[int, ...] = ()
        """Ids of the commands to stop, which the end of the training answers."""
        self.is_busy = self._history.is_on
        """Whether every border needs a `turn`."""
        self._is_in_block = False  # and nothing else is due before its end

    @property
    def paused(self) -> bool:
        return self._paused

    @property
    def is_tracing(self) -> bool:
        return self._profiling.tracing is not None

    @property
    def is_over(self) -> bool:
        return self._has_left and not self.is_busy

    def read(self) -> None:
        """End also a profile that has lasted too long."""
        self.tell_loaders()
        self._receive()
        self._profiling.end_overdue()
        self._note_work()

    def tell_loaders(self) -> None:
        self._life.tell_loaders(loader_workers.pids())

    def _receive(self) -> None:
        for told in self._line.read():
            if isinstance(told, Figures):
                self._wandb.take(told)
            else:
                self._inbox.append(told)
        self._wandb.look()

    def rest(self) -> None:
        """Wait for the next command, at most until the next report is due."""
        self._line.wait(REPORT_EVERY_S)

    def turn(self) -> None:
        if self._is_in_block and not self._may_end_block() and not self._line.gone:
            return
        self._turn()
        self._note_work()

    def _note_work(self) -> None:
        is_tracing = self._profiling.tracing is not None
        waits = self._switching.waiting is not None or is_tracing or self._history.is_on
        waits = waits or self._rehearsing.waits
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
        if not self._profiling.turn(is_last=len(self._inbox) > 0):
            return
        self._switching.turn()
        self._rehearsing.turn()
        self._obey_all()
        is_halted = self._switching.waiting is not None or self.paused
        if self._blocks.running and not is_halted and self._may_end_block():
            before = self._blocks.current
            self._run.turn(GONE if self._has_left else None)
            block = self._blocks.current
            if block is not None and block.waits and block is not before:
                self._stand()
        if self._training.is_shared:
            self._decisions.prepare(self._inbox)

    def notice(self, before: Settings) -> None:
        """Report settings that changed on their own since `before`, as with a new DataLoader."""
        self._switching.notice(before)

    def ran_out(self, asked_bytes: int) -> None:
        self._history.ran_out(asked_bytes)

    def recover(self, refusal: Refusal, began_s: float) -> None:
        self._profiling.drop("the training ran out of memory")
        self._switching.recover(refusal, began_s)
        self._note_work()

    def close(self) -> None:
        """End the profile and the time in progress: the training takes no more steps."""
        self._profiling.end()
        self._wall_clock.stop()

    def halt(self) -> None:
        """End what cannot outlast a notebook's cell: a profile, a block's time, a pause."""
        self.close()
        self._paused = False
        self._note_work()

    def go_on(self) -> None:
        """Begin the block in progress anew, after `halt`."""
        self._switching.begin_block()

    def finish(self, why: str) -> tuple[int, ...]:
        """Return the ids of the commands that have no answer yet."""
        if self._blocks.running:
            self._replies.end_blocks(why)
        self._history.stop(why)
        self._receive()
        return (*self.stops, *(command.id for command in self._inbox))

    def dismiss(self, why: str) -> None:
        """Answer all open commands: nothing more will be obeyed."""
        commands = [*self._inbox]
        waiting = self._switching.waiting
        if waiting is not None and waiting.command is not None:
            commands.append(waiting.command)
        self._profiling.dismiss(why)
        self._rehearsing.drop(why)
        for command in commands:
            self._replies.refuse(why, command)
        self._release_ranks(commands, why)
        if self._blocks.running:
            self._training.decide(self._decisions.way_back_topic, why)
            self._life.turn(time.monotonic(), **OUTSIDE_BLOCKS)
            self._replies.end_blocks(why)
        self._history.report_shortage()
        self._history.stop(why)
        self._inbox.clear()
        self._paused = False
        self._wall_clock.abandon()
        self._wandb.close(LAST_S)
        self._training.slow(None)
        self._switching.waiting = None
        self._training.keep_calls(keep=False)
        self._note_work()

    def _leave(self) -> None:
        self._has_left = True
        self._wandb.close()
        self._history.stop(GONE)
        self._release_ranks(self._inbox, GONE)
        self._inbox.clear()
        if self._paused:
            self._paused = False
            self._training.interrupt()
        self._switching.drop()
        self._rehearsing.drop(GONE)
        self._profiling.abandon()
        if self._blocks.running and not self._training.is_shared:  # ranks decide on that
            self._run.leave(GONE)

    def _release_ranks(self, commands: Iterable[AnyCommand], why: str) -> None:
        """Refuse these commands for all ranks, so that none waits for this one."""
        if self._training.is_shared:
            for command in commands:
                if self._decisions.is_for_all(command):
                    self._training.decide(topic(command), why)
            if self._blocks.running:
                self._training.decide(self._decisions.block_topic, why)

    # ── commands ────────────────────────────────────────────────────────────────────────

    def _obey_all(self) -> None:
        """Obey no command during a profile, and only pauses while a change waits."""
        is_held_up = False
        for command in list(self._inbox):
            is_free = self._switching.waiting is None and not self._rehearsing.waits
            its_turn = is_free or isinstance(command, Pause | Resume)
            is_early = self._decisions.is_early(command) and not self.paused
            is_held_up = is_held_up or self.is_tracing or is_early
            if is_held_up or not its_turn:
                continue
            if self._obey(command):
                self._inbox.remove(command)  # if obeying fails, `dismiss` still answers it
            else:
                is_held_up = isinstance(command, Profile)  # a Resume may be what it waits for

    def _obey(self, command: AnyCommand) -> bool:
        """Return False if something else has to come first."""
        why_not = self._training.why_not(command)
        if why_not is not None:
            self._replies.refuse(why_not, command)
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
                return self._profile(command)
            case Rehearse() | Memory():
                self._inspect(command)
            case Stop():
                self._stop(command)
        return True

    def _pause(self, command: Pause) -> None:
        if self._decide(command):
            self._stand((command.id,))

    def _stand(self, answers: tuple[int, ...] = ()) -> None:
        self._paused = True
        at_s, anew = time.monotonic(), self._training.anew(in_blocks=self._blocks.running)
        self._life.pause(at_s, answers=answers, **anew)

    def _resume(self, command: Resume) -> None:
        if not self._decide(command):
            return
        if self._paused:
            self._paused = False
            self._training.interrupt()
            self._life.resume(time.monotonic(), (command.id,))
            # prefetched batches would distort the block
            self._switching.begin_block()
        else:
            self._life.resume(time.monotonic(), (command.id,))

    def _stop(self, command: Stop) -> None:
        if self._decide(command):
            self.stops += (command.id,)

    def _change(self, command: Change) -> None:
        levers, began_s = self._training.levers, time.monotonic()
        changes, refusal = self._run.changes_back() | command.settings, None
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
        self._switching.switch(
            PlannedSwitch(wanted, changes, began_s, command, leaves, topic=entered)
        )

    def _take_blocks(self, command: Blocks) -> bool:
        if self._blocks.begins(command) and not self._decide(command):
            return True
        return self._run.take(command)

    def _profile(self, command: Profile) -> bool:
        if (why := self._why_not_beside()) is not None:
            self._replies.refuse(f"{why}: profile it afterwards", command)
            return True
        return self._profiling.begin(command)

    def _inspect(self, command: Rehearse | Memory) -> None:
        if isinstance(command, Rehearse):
            self._rehearsing.begin(command, self._why_not_beside())
        else:
            self._history.ask(command, self._training.step)

    def _why_not_beside(self) -> str | None:
        if self.paused:
            return "the training is paused"
        return "an A/B is running" if self._blocks.running else None

    def _decide(
        self, command: AnyCommand, refusal: str | None = None, *, is_late: bool = False
    ) -> bool:
        """Answer the command if not all ranks obey it."""
        decided = self._training.decide(topic(command), refusal, is_late=is_late)
        if decided.is_late:
            self._line.send(TooLate(answers=(command.id,)))
        elif decided.refusal is not None:
            self._replies.refuse(decided.refusal, command)
        return decided.refusal is None
