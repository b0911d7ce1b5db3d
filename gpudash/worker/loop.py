"""The child's loop: step, obey, report.

While levers stay as they are, nothing in here waits for the device, but around a block under the
wall_clock. A command is obeyed between two steps, within 25 ms; in a block without instruments,
after it.
"""

import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from gpudash.instrument.block_queue import BlockQueue, difference
from gpudash.instrument.clock import Mark
from gpudash.instrument.collectives import Collectives
from gpudash.instrument.memory import device_memory, give_back, reset_peak
from gpudash.instrument.memory_history import TRACED, MemoryHistory
from gpudash.instrument.pipes import CommandPipe
from gpudash.instrument.profiler import NoProfile, Profiler
from gpudash.instrument.reporter import REPORT_EVERY_S, Reports, instruments
from gpudash.protocol import (
    AnyCommand,
    Block,
    Blocks,
    BlocksEnded,
    Change,
    Changed,
    Event,
    Finished,
    Memory,
    Note,
    Pause,
    Paused,
    Plan,
    Profile,
    RefusalKind,
    Refused,
    Resume,
    Resumed,
    Settings,
    Stop,
    Timed,
)
from gpudash.worker.memory_needs import MemoryNeeds
from gpudash.worker.phases import PHASES
from workloads.levers import LeverError, phrase
from workloads.memory import is_out_of_memory
from workloads.own.loading import told
from workloads.training import Training

ResultT = TypeVar("ResultT")
DUE_EVERY_S = 0.025
"""How often the loop looks for commands and for a report that is due: a system call for each
step would cost short steps more than some lever gains."""
RUN_AHEAD_S = 0.015
"""How much work the host enqueues beyond what the device has finished; at least two steps.
Enough to outlast most of what holds the host up. Little enough that a lever or a pause takes
effect soon, and that a stream's queue of 1024 launches hardly fills up: PyTorch takes 12 µs or more
to enqueue one, and a host that waits for room in it would pass for busy."""
MIN_AHEAD = 2
RUN_AHEAD_POLL_S = 0.0001
WATCHED_STEPS = 2
"""After the start or a change, in case memory runs out: the second has all that a step needs."""


class Loop:
    """Steps a training until its plan is fulfilled or it is told to stop."""

    phases = PHASES

    def __init__(
        self, training: Training, plan: Plan, commands: CommandPipe, send: Callable[[Event], None]
    ) -> None:
        self._training = training
        self._plan = plan
        self._commands = commands
        self._send = send
        self._clock, losses = instruments(training.device, self.phases)
        reported = training.input_report, training.synchronize
        memory = partial(device_memory, training.device)
        self._reports = Reports(self._clock, losses, *reported, send, memory, self._collectives)
        self._noted = set(training.notes.values())  # the session has been told at the start
        self._requested = plan.settings
        self._last_good = dict(training.settings)  # settings with which a step went through …
        self._last_good_requested = plan.settings  # … and how they had been asked for
        self._warm_from_step = 0  # from here on they have shown what they need
        self._needs = MemoryNeeds(training.device)
        self._history = MemoryHistory(training.device, training.owned, send)
        self._blocks = BlockQueue()
        self._paused: Paused | None = None
        self._stops: tuple[int, ...] = ()
        self._due_s = 0.0  # commands and reports
        self._enough: float = MIN_AHEAD  # steps that keep the device busy
        self._began_s = time.monotonic()

    def run(self) -> None:
        """Train until done. Raises ParentGone, or what the workload raises.

        Where memory has run out, notes of the error say what is known of that.
        """
        try:
            self._run()
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                told = self._history.tell()
                for known in self._needs.why_not(self._training.settings, told):
                    error.add_note(known)
            raise

    def _run(self) -> None:
        self._history.watch(WATCHED_STEPS)
        while not self._done():
            if self._blocks.running and not self._paused:
                self._turn_blocks()
                if self._done():  # within a block timed by the wall clock
                    break
            self._turn()
        self._drain()
        self._reports.send_last()
        if self._blocks.running:
            self._send(self._blocks.end(time.monotonic(), "the training ended"))
        self._history.stop("the training ended")
        answers = (*self._stops, *(command.id for command in self._commands.read()))
        total_steps = self._reports.total_steps
        self._send(Finished(at_s=time.monotonic(), answers=answers, total_steps=total_steps))

    def _turn(self) -> None:
        """See to what is due, then take a step, unless the device has enough to do."""
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = now_s + DUE_EVERY_S
            if now_s >= self._reports.due_s:
                self._report()
            self._obey_commands()
            if self._done():
                return
            if self._history.turn(self._training.trained_steps):
                self._break()
        if self._paused:
            self._rest(REPORT_EVERY_S)
        # what has finished since the last look counts as enqueued: looking takes time
        elif self._clock.enqueued >= self._enough and self._far_ahead():
            self._rest(RUN_AHEAD_POLL_S)
        else:
            self._iterate()

    def _rest(self, at_most_s: float) -> None:
        if self._commands.wait(at_most_s):
            self._due_s = 0.0

    def _obey_commands(self) -> None:
        began_s = time.monotonic()
        commands = self._commands.read()
        self._reports.spent_s += time.monotonic() - began_s
        for command in commands:
            self._obey(command)

    def _done(self) -> bool:
        plan, training = self._plan, self._training
        if self._stops:
            return True
        if plan.steps is not None and training.trained_steps + training.pending >= plan.steps:
            return True
        return plan.duration_s is not None and self._now() - self._began_s >= plan.duration_s

    def _now(self) -> float:
        """Return the time by which it is judged how long something has lasted."""
        return time.monotonic()

    def _together(self, act: Callable[[], ResultT]) -> ResultT:
        """Do what may be refused: with other ranks, on all of them or on none.

        Raises LeverError for a refusal, and for whatever the user's code raises then.
        """
        try:
            return act()
        except Exception as error:
            if isinstance(error, LeverError) or is_out_of_memory(error):
                raise
            traceback.print_exc()
            raise LeverError(told(error, self._plan.workload)) from error

    def _far_ahead(self) -> bool:
        """Look; tell whether the host has enqueued more than the device needs to stay busy."""
        self._reports.look()
        self._enough = max(MIN_AHEAD, RUN_AHEAD_S * 1e3 / self._clock.step_ms)
        return self._clock.enqueued >= self._enough

    def _iterate(self) -> None:
        training, before = self._training, self._training.trained_steps
        try:
            trained = training.step(self._begin())
        except (RuntimeError, MemoryError) as error:
            if not self._may_roll_back(error):
                raise
        else:
            if trained is None:  # on two streams: only prepared a batch
                self._clock.end(None, data_s=training.data_s)
            else:
                self._clock.end(
                    training.trained_steps, trained.samples, trained.loss, training.data_s
                )
            return
        # here the traceback is gone, whose frames held the step's tensors
        steps = training.trained_steps - before  # two streams: trained, then failed to prepare
        self._reports.count(steps, steps * int(training.settings["batch_size"]))
        self._roll_back(self._clock.began_s)

    def _begin(self) -> Mark:
        """Open an iteration; return what it is to be marked with."""
        return self._clock.begin()

    def _collectives(self) -> Collectives:
        """Return what a step exchanges with other processes."""
        return Collectives()

    def _break(self) -> None:
        """Begin anew: neither the time until now nor the pace so far is the next step's."""
        self._clock.interrupt()
        self._enough = MIN_AHEAD

    def _may_roll_back(self, error: Exception) -> bool:
        """Tell whether settings that are not proven yet need too much memory."""
        return is_out_of_memory(error) and self._training.settings != self._last_good

    def _fits(self, action: Callable[[], None]) -> bool:
        """Run it; return False where it needs too much memory and there is a way back."""
        try:
            action()
        except (RuntimeError, MemoryError, OSError) as error:
            if not self._may_roll_back(error):
                raise
            return False
        return True

    def _drain(self) -> None:
        training = self._training
        if training.pending:
            trained = training.drain(self._begin())
            assert trained is not None, "it was pending"
            self._clock.end(training.trained_steps, trained.samples, trained.loss)

    def _report(self) -> None:
        newest = self._reports.send()
        if newest and newest.segment == self._clock.segment and newest.step > self._warm_from_step:
            self._last_good = dict(self._training.settings)
            self._last_good_requested = self._requested
            self._needs.note(self._training.settings, self._reports.memory)

    def _obey(self, command: AnyCommand) -> None:
        match command:
            case Change():
                self._change(command)
            case Blocks():
                self._take_blocks(command)
            case Profile():
                self._profile(command)
            case Pause():
                self._pause(command)
            case Resume():
                self._resume(command)
            case Memory():
                self._history.ask(command, self._training.trained_steps)
            case Stop():
                self._stops += (command.id,)

    def _pause(self, command: Pause) -> None:
        paused = self._paused or Paused(
            at_s=time.monotonic(), after_step=self._training.trained_steps
        )
        self._paused = msgspec.structs.replace(paused, answers=(command.id,))
        self._send(self._paused)

    def _resume(self, command: Resume) -> None:
        if self._paused:
            self._paused = None
            self._break()
            # what the loader has prefetched meanwhile belongs to no block
            self._begin_block()
        self._send(Resumed(at_s=time.monotonic(), answers=(command.id,)))

    def _profile(self, command: Profile) -> None:
        """Trace the next steps: no instrument sees them, and they are in no rate."""
        answers = (command.id,)
        if self._blocks.running or self._paused:
            why = "the training is paused" if self._paused else "an A/B is running"
            self._refuse("no_profile", {}, f"{why}: profile it afterwards", answers)
            return
        self._history.stop(TRACED)
        began_s, step = self._start_wall_clock()
        self._send(Paused(at_s=began_s, after_step=step, why="profile"))
        roots, _ = self._training.owned()
        profiler = Profiler(self._training.device, command.steps, Path(command.path), roots)
        try:
            fits = self._fits(lambda: self._trace(profiler, answers))
        finally:
            profiler.abandon()
        reset_peak(self._training.device)  # measuring the device's own took memory too
        self._send(Resumed(at_s=time.monotonic()))
        self._break()
        if not fits:
            self._refuse("no_profile", {}, "the training ran out of memory", answers)
            self._roll_back(began_s)

    def _trace(self, profiler: Profiler, answers: tuple[int, ...]) -> None:
        """Step until it is enough, or until something else is asked; tell what came of it."""
        from gpudash.instrument.flops import counting  # noqa: PLC0415  # no start waits for it

        training, settings = self._training, self._training.settings
        first = training.trained_steps
        try:
            training.step()  # on two streams, each step after it has both halves
            # beside what a graph replays, the rest of a step would pass for all of it
            unseen = "on" in (settings.get("compile"), settings.get("cuda_graph"))
            with counting(training.device, compiled=unseen) as counter:
                if not self._done():
                    training.step()
            try:
                profiler.begin(training.trained_steps + 1)
                is_over = self._done()
                while not is_over:
                    training.step()
                    is_over = profiler.step(is_last=self._done() or self._commands.wait(0))
                precision, step_ms = settings.get("precision", ""), self._reports.step_ms
                profiled = profiler.end(precision, counter.flops(), step_ms)
                self._send(msgspec.structs.replace(profiled, answers=answers))
            except NoProfile as why:
                self._refuse("no_profile", {}, str(why), answers)
            training.drain()
        finally:
            steps = training.trained_steps - first
            self._reports.count(steps, steps * int(training.settings["batch_size"]))

    def _take_blocks(self, command: Blocks) -> None:
        run = self._blocks.run
        if run is not None and command.run > run:
            self._leave_blocks("other blocks began")
        if not self._blocks.take_in(command, self._training.settings):
            now_s, answers = time.monotonic(), (command.id,)
            why = "it had ended before"
            self._send(BlocksEnded(at_s=now_s, answers=answers, run=command.run, why=why))

    def _change(self, command: Change) -> None:
        began_s, answers = time.monotonic(), (command.id,)
        changes = self._way_back() | command.settings
        try:
            # with blocks, any change ends them, whatever is active just now
            resolve = self._training.resolve if self._blocks.running else self._training.check
            wanted = self._together(lambda: resolve(changes))
        except LeverError as error:
            self._refuse("bad_setting", command.settings, str(error), answers)
            return
        self._blocks.current = None
        self._switch(changes, wanted, began_s, answers, self._requested | command.settings)
        if self._blocks.running:
            self._send(self._blocks.end(time.monotonic(), "another change ended it"))

    def _switch(
        self,
        changes: Settings,
        wanted: Settings,
        began_s: float,
        answers: tuple[int, ...] = (),
        requested: Settings | None = None,
    ) -> None:
        """Enter the resolved settings that `changes` leads to, or go back to what worked."""
        self._drain()
        if answers and not self._blocks.running:
            # in its warm-up, in which nothing is measured, memory may run out
            self._history.watch(self._training.trained_steps + WATCHED_STEPS)
        try:
            fits = self._fits(lambda: self._together(lambda: self._training.enter(wanted)))
        except LeverError as error:  # found while building: a data directory that is gone
            self._roll_back(began_s, answers, str(error))
            return
        if fits:
            self._requested = requested or self._requested
            self._entered_segment(changes, began_s, answers)
        else:
            self._roll_back(began_s, answers)

    def _begin_block(self) -> None:
        training = self._training
        self._blocks.entered(training.trained_steps, training.warmup_steps, training.burst_steps)

    def _way_back(self) -> Settings:
        """Return the changes that lead back to before the blocks, if any are run."""
        running = self._blocks.running
        return difference(self._training.settings, self._blocks.baseline) if running else {}

    def _leave_blocks(self, why: str) -> None:
        """Go back to the settings from before the blocks."""
        began_s, changes = time.monotonic(), self._way_back()
        self._blocks.current = None
        self._switch(changes, self._blocks.baseline, began_s)
        self._send(self._blocks.end(time.monotonic(), why))

    def _turn_blocks(self) -> None:
        """Go on to the next block when the one in progress has lasted long enough."""
        blocks, training = self._blocks, self._training
        if not self._block_is_over():
            return
        began_s, block = time.monotonic(), blocks.take()
        if block is None:
            self._leave_blocks("no block is left")
            return
        try:
            wanted = self._together(lambda: training.resolve(blocks.baseline | block.changes))
        except LeverError as error:
            self._refuse("bad_setting", block.changes, str(error))
            blocks.current = None
            return
        self._switch(difference(training.settings, wanted), wanted, began_s)
        if block.wall_clock is not None and blocks.current is block:
            self._time(block)

    def _time(self, block: Block) -> None:
        """Run a whole block timed by the wall clock, from an idle device to an idle device."""
        training = self._training
        began_s, first = self._start_wall_clock()
        if block.wall_clock == "uninstrumented":
            if not self._fits(self._run_uninstrumented):
                self._roll_back(time.monotonic())
        else:
            while not self._block_is_over():
                was_paused = self._paused is not None
                self._turn()
                if was_paused and not self._paused:  # the block begins anew
                    began_s, first = self._start_wall_clock()
            self._drain()
        if self._blocks.current is not block:  # refused, or ended by a change
            return
        training.synchronize()  # sync: the wall clock stops
        now_s, steps = time.monotonic(), training.trained_steps - first
        samples, seconds = steps * int(training.settings["batch_size"]), now_s - began_s
        number = block.number
        self._send(Timed(at_s=now_s, block=number, steps=steps, samples=samples, seconds=seconds))

    def _start_wall_clock(self) -> tuple[float, int]:
        """Return the moment and the steps trained, with everything before done and reported."""
        self._drain()
        self._training.synchronize()  # sync: the wall clock starts
        self._report()  # or these steps would be counted after those without instruments
        return time.monotonic(), self._training.trained_steps

    def _run_uninstrumented(self) -> None:
        """Step with nothing around it; commands wait until the block is over."""
        training = self._training
        first = training.trained_steps
        try:
            while not self._block_is_over():
                training.step()
            training.drain()
        finally:
            steps = training.trained_steps - first
            self._reports.count(steps, steps * int(training.settings["batch_size"]))

    def _block_is_over(self) -> bool:
        last_step = self._training.trained_steps + self._training.pending
        over = self._blocks.current is None or (
            not self._paused and self._blocks.is_over(last_step, self._now())
        )
        return over or self._done()

    def _entered_segment(
        self, changes: Settings, began_s: float, answers: tuple[int, ...] = ()
    ) -> None:
        self._clock.segment += 1
        self._break()
        if "batch_size" in changes and not self._blocks.running:
            give_back(self._training.device)
        reset_peak(self._training.device)
        training = self._training
        self._warm_from_step = training.trained_steps + training.warmup_steps
        self._begin_block()
        blocks, now = self._blocks, time.monotonic()
        self._send(
            Changed(
                at_s=now,
                answers=answers,
                segment=self._clock.segment,
                after_step=training.trained_steps,
                changes=changes,
                settings=dict(training.settings),
                requested=self._requested,
                took_ms=(now - began_s) * 1e3,
                warmup_steps=training.warmup_steps,
                notes=tuple(Note(lever=lever, text=text) for lever, text in training.notes.items()),
                run=None if answers else blocks.run,
                block=blocks.current.number if blocks.current else None,
            )
        )
        new = [note for note in training.notes.values() if note not in self._noted]
        self._noted.update(new)  # told once, however often a comparison switches
        self._say(new)

    def _say(self, notes: list[str]) -> None:
        for note in notes:
            print(note, flush=True)

    def _roll_back(self, began_s: float, answers: tuple[int, ...] = (), why: str = "") -> None:
        """Go back to the settings that were last seen to work; `why`, if not for memory.

        What has been tried since `began_s` is part of what the change took.
        """
        failed, good = self._training.settings, self._last_good
        changes, restored = difference(good, failed), difference(failed, good)
        told = None if why else self._history.tell()
        self._training.recover(good)
        give_back(self._training.device)
        self._requested = self._last_good_requested
        kind: RefusalKind = "bad_setting" if why else "out_of_memory"
        known = () if why else self._needs.why_not(failed, told)
        why = why or f"out of memory with {phrase(changes)}"
        reason = "; ".join((f"{why}: went back to {phrase(restored)}", *known))
        self._refuse(kind, changes, reason, answers)
        self._blocks.current = None
        self._entered_segment(restored, began_s)

    def _refuse(
        self, kind: RefusalKind, changes: Settings, reason: str, answers: tuple[int, ...] = ()
    ) -> None:
        """Say what cannot be: settings that a command asked for, or the block in progress."""
        refused = Refused(answers=answers, kind=kind, changes=changes, reason=reason)
        block = self._blocks.current
        if block is not None and not answers:
            refused = msgspec.structs.replace(refused, run=self._blocks.run, block=block.number)
        self._send(refused)
