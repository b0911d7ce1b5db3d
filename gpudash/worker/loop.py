"""The worker's loop: step, obey commands, report.

Between two lever changes nothing here waits for the device, except around a block timed by the
wall clock. A command is obeyed between two steps, within 25 ms. In a block without instruments it
is obeyed after the block.
"""

import time
from pathlib import Path

import msgspec

from gpudash.instrument.block_queue import difference
from gpudash.instrument.life import OUTSIDE_BLOCKS, Life
from gpudash.instrument.memory import reset_peak
from gpudash.instrument.memory_history import TRACED
from gpudash.instrument.pipes import CommandPipe
from gpudash.instrument.profiler import NoProfile, Profiler
from gpudash.instrument.reporter import REPORT_EVERY_S
from gpudash.protocol import (
    AnyCommand,
    Block,
    Blocks,
    BlocksEnded,
    Change,
    Memory,
    Pause,
    Plan,
    Profile,
    Resume,
    Settings,
    Stop,
    Timed,
)
from gpudash.worker.switching import MIN_AHEAD, WATCHED_STEPS, Switching
from workloads.levers import LeverError
from workloads.memory import is_out_of_memory
from workloads.training import Training

DUE_EVERY_S = 0.025
"""Period at which the loop looks for commands and sends reports: a system call in each step would
cost short steps more than some levers gain."""
RUN_AHEAD_S = 0.015
"""How much work the host enqueues ahead of the device; at least two steps.
Enough to bridge most delays of the host. Little enough that a lever or a pause takes effect soon,
and that a stream's queue of 1024 launches hardly fills up: PyTorch takes 12 µs or more to enqueue
one, and a host that waits for room in the queue would be counted as busy."""
RUN_AHEAD_POLL_S = 0.0001


class Loop(Switching):
    """Steps a training until its plan is fulfilled or a Stop arrives."""

    def __init__(self, training: Training, plan: Plan, commands: CommandPipe, life: Life) -> None:
        super().__init__(training, plan, life)
        self._commands = commands
        self._paused = False
        self._stops: tuple[int, ...] = ()
        self._due_s = 0.0  # when to look for commands and reports next
        self._began_s = time.monotonic()

    def run(self) -> None:
        """Train until done. Raises ParentGone, or what the workload raises.

        An out-of-memory error gets notes: which batch would fit, and who owned most.
        """
        try:
            self._run()
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                owners = self._history.report()
                for known in self._needs.why_not(self._training.settings, owners):
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
        self._life.turn(
            time.monotonic(),
            phase="finished",
            why=None,
            after_step=total_steps,
            answers=answers,
            **OUTSIDE_BLOCKS,
        )

    def _turn(self) -> None:
        """Report and obey if that is due, then take a step unless the device has enough work."""
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
        # steps finished since the last look count as enqueued: looking takes time
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
        """Return the time by which durations of the plan and of blocks are measured."""
        return time.monotonic()

    def _far_ahead(self) -> bool:
        """Read finished steps; return whether enough are enqueued to keep the device busy."""
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
            if trained is None:  # on two streams: a batch was only prepared
                self._clock.end(None, data_s=training.data_s)
            else:
                self._clock.end(
                    training.trained_steps, trained.samples, trained.loss, training.data_s
                )
            return
        # here the traceback is freed, whose frames held the step's tensors
        steps = training.trained_steps - before  # 1 if two streams trained, then failed to prepare
        self._reports.count(steps, steps * int(training.settings["batch_size"]))
        self._roll_back(self._clock.began_s)

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
        self._paused = True
        self._life.pause(time.monotonic(), self._training.trained_steps, answers=(command.id,))

    def _resume(self, command: Resume) -> None:
        if self._paused:
            self._paused = False
            self._break()
            # batches that the loader has prefetched meanwhile belong to no block
            self._begin_block()
        self._life.resume(time.monotonic(), (command.id,))

    def _profile(self, command: Profile) -> None:
        """Trace the next steps. They are not instrumented and count in no rate."""
        answers = (command.id,)
        if self._blocks.running or self._paused:
            why = "the training is paused" if self._paused else "an A/B is running"
            self._refuse("no_profile", {}, f"{why}: profile it afterwards", answers)
            return
        self._history.stop(TRACED)
        began_s, step = self._start_wall_clock()
        self._life.pause(began_s, step, "profile")
        roots, _ = self._training.owned()
        profiler = Profiler(self._training.device, command.steps, Path(command.path), roots)
        try:
            fits = self._fits(lambda: self._trace(profiler, answers))
        finally:
            profiler.abandon()
        reset_peak(self._training.device)  # the profiler's short benchmarks took memory too
        self._life.resume(time.monotonic())
        self._break()
        if not fits:
            self._refuse("no_profile", {}, "the training ran out of memory", answers)
            self._roll_back(began_s)

    def _trace(self, profiler: Profiler, answers: tuple[int, ...]) -> None:
        """Trace until the profile is complete or another command arrives; send the result."""
        from gpudash.instrument.flops import counting  # noqa: PLC0415  # slow; keeps the start fast

        training, settings = self._training, self._training.settings
        first = training.trained_steps
        try:
            training.step()  # on two streams, each step after it has both halves
            # operators that a graph replays are not counted, so the count would be too low
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
                _, optimizers = training.owned()
                profiled = profiler.end(precision, counter.flops(), step_ms, optimizers)
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
        changes = self._changes_to_baseline() | command.settings
        try:
            # a change always ends blocks, even one that sets what the present block has
            resolve = self._training.resolve if self._blocks.running else self._training.check
            wanted = self._on_all_ranks(lambda: resolve(changes))
        except LeverError as error:
            self._refuse("bad_setting", command.settings, str(error), answers)
            return
        self._blocks.current, self._leaves_blocks = None, True
        self._switch(changes, wanted, began_s, answers, self._requested | command.settings)
        self._leaves_blocks = False
        if self._blocks.running:
            self._send(self._blocks.end(time.monotonic(), "another change ended it"))

    def _changes_to_baseline(self) -> Settings:
        """Return the changes back to the settings from before the blocks; none without blocks."""
        running = self._blocks.running
        return difference(self._training.settings, self._blocks.baseline) if running else {}

    def _leave_blocks(self, why: str) -> None:
        """Go back to the settings from before the blocks."""
        began_s, changes = time.monotonic(), self._changes_to_baseline()
        self._blocks.current, self._leaves_blocks = None, True
        self._switch(changes, self._blocks.baseline, began_s)
        self._leaves_blocks = False
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
            wanted = self._on_all_ranks(lambda: training.resolve(blocks.baseline | block.changes))
        except LeverError as error:
            self._refuse("bad_setting", block.changes, str(error))
            blocks.current = None
            return
        self._switch(difference(training.settings, wanted), wanted, began_s)
        if block.wall_clock is not None and blocks.current is block:
            self._time_block(block)

    def _time_block(self, block: Block) -> None:
        """Run a whole block timed by the wall clock, from an idle device to an idle device."""
        training = self._training
        began_s, first = self._start_wall_clock()
        if block.wall_clock == "uninstrumented":
            if not self._fits(self._run_uninstrumented):
                self._roll_back(time.monotonic())
        else:
            while not self._block_is_over():
                was_paused = self._paused
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
        """Finish and report all steps so far; return the moment and the steps trained."""
        self._drain()
        self._training.synchronize()  # sync: the wall clock starts
        self._report()  # else these steps would be counted after those without instruments
        return time.monotonic(), self._training.trained_steps

    def _run_uninstrumented(self) -> None:
        """Step without instruments; commands wait until the block is over."""
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
