"""The worker's loop: step, let the commands have their turn, report.

Between two lever changes nothing here waits for the device, except around a block timed by the
wall clock. A command is obeyed between two steps, within 25 ms; with several ranks, after the step
that it names.
"""

import time
from collections.abc import Callable

from gpudash.instrument.pipes import CommandPipe, Sent
from gpudash.instrument.reporter import REPORT_EVERY_S
from gpudash.instrument.state_sender import OUTSIDE_BLOCKS, StateSender
from gpudash.protocol.commands import Plan
from gpudash.protocol.training import TRAINING_ENDED
from gpudash.training.command_loop import CommandLoop
from gpudash.training.commanded import OutOfMemory
from gpudash.training.decision_steps import DECIDE_EVERY_S
from gpudash.worker.workload_training import MIN_AHEAD, WorkloadTraining
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
RUN_AHEAD_POLL_S = 0.001
"""As short as `poll` can be: it rounds up to whole milliseconds."""


class _Pipes:
    """The worker's pipes as a line to the dashboard, without which it does not live."""

    gone = False

    def __init__(self, commands: CommandPipe, send: Callable[[Sent], None]) -> None:
        self.send = send
        self.read = commands.read
        self.wait = commands.wait


class Loop:
    """Steps a training until its plan is fulfilled or a Stop arrives."""

    def __init__(
        self, training: Training, plan: Plan, commands: CommandPipe, life: StateSender
    ) -> None:
        self._life = life
        self.training = WorkloadTraining(training, plan, life.send)
        self._plan = plan
        self._line = _Pipes(commands, life.send)
        self._clock, self._reports = self.training.clock, self.training.reports
        self._commands = CommandLoop(
            self._line, life, self.training, self._reports, self.training.history
        )
        self._due_s = 0.0  # when to look for commands and reports next
        self._began_s = time.monotonic()
        # with several ranks: the step at which they decide whether to end, and its segment
        self._decide_at, self._decided_segment = 1, 0

    def run(self) -> None:
        """Raise ParentGone, or what the workload raises: an out-of-memory error gets notes."""
        try:
            self._run()
        except (RuntimeError, MemoryError, OutOfMemory) as error:
            if is_out_of_memory(error):
                owners = self.training.history.report()
                for known in self.training.needs.why_not(self.training.settings, owners):
                    error.add_note(known)
            raise

    def _run(self) -> None:
        training, clock, commands = self.training, self._clock, self._commands
        while not self._done():
            now_s = time.monotonic()
            if now_s >= self._due_s:
                self._serve(now_s)
            if commands.is_busy:
                commands.turn()
                if commands.paused:
                    self._rest(REPORT_EVERY_S)
                    continue
                if commands.stops:
                    break
            # steps finished since the last look count as enqueued: looking takes time
            if clock.enqueued >= training.enough and self._far_ahead():
                self._rest(RUN_AHEAD_POLL_S)
            else:
                self._step()
        commands.close()
        training.drain()
        self._reports.send_last()
        answers = commands.finish(TRAINING_ENDED)
        total_steps = self._reports.total_steps
        self._life.turn(
            time.monotonic(),
            phase="finished",
            why=None,
            after_step=total_steps,
            answers=answers,
            **OUTSIDE_BLOCKS,
        )

    def _serve(self, now_s: float) -> None:
        self._due_s = now_s + DUE_EVERY_S
        reports = self._reports
        are_reported = self.training.is_measured and not self._commands.is_tracing
        if now_s >= reports.due_s and are_reported:
            reports.send()
        own_s = time.thread_time()
        self._commands.read()
        reports.spent_s += time.thread_time() - own_s

    def _rest(self, at_most_s: float) -> None:
        if self._line.wait(at_most_s):
            self._due_s = 0.0

    def _done(self) -> bool:
        plan = self._plan
        if self._commands.stops:
            return True
        if plan.steps is not None and self.training.taken >= plan.steps:
            return True
        return plan.duration_s is not None and self._has_lasted(plan.duration_s)

    def _has_lasted(self, duration_s: float) -> bool:
        """Decide by rank 0's clock if there are several ranks."""
        training, now_s = self.training, time.monotonic()
        left_s = self._began_s + duration_s - now_s
        if not training.is_shared:
            return left_s <= 0
        from_step, from_s = training.segment_from
        if self._decided_segment != training.segment:  # steps may take longer now
            self._decided_segment, self._decide_at = training.segment, from_step + 1
        if training.taken < self._decide_at:
            return False
        paced = training.taken - from_step
        within_left = min(left_s, DECIDE_EVERY_S) / (now_s - from_s) * paced
        # at most as many as were paced: the next ones may take longer
        plan = training.taken + max(1, min(paced, int(within_left)))
        topic = f"{training.taken}.duration"
        decided = training.decide(topic, None, str(plan) if left_s > 0 else "")
        self._decide_at = int(decided.payload or 0)
        return not decided.payload

    def _far_ahead(self) -> bool:
        """Read finished steps; return whether enough are enqueued to keep the device busy."""
        if self._commands.is_tracing:  # traced steps are in no report
            return False
        self._reports.look()
        self.training.enough = max(MIN_AHEAD, RUN_AHEAD_S * 1e3 / self._clock.step_ms)
        return self._clock.enqueued >= self.training.enough

    def _step(self) -> None:
        training, before = self.training, self.training.step
        try:
            training.take()
        except (RuntimeError, MemoryError) as error:
            if not training.may_go_back(error):
                raise
        else:
            return
        # here the traceback is freed, whose frames held the step's tensors
        if training.is_measured:
            # 1 if two streams trained, then failed to prepare
            steps = training.step - before
            self._reports.pass_over(training.step, steps, training.samples_of(steps))
        self._commands.recover(OutOfMemory("out of memory"), self._clock.began_s)
