"""Connects the tracker in the user's process with the dashboard.

Nothing here waits, except while a dashboard has paused the training, and around a block timed by
the wall clock. After an exception of its own gpudash puts its levers back and measures no more.
"""

import contextlib
import os
import socket
import sys
import time
import weakref
from collections.abc import Callable
from functools import partial, wraps
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeAlias

import torch

from ..errors import first_line
from ..instrument import loader_workers, stack_server
from ..instrument.device import describe_device, device_memory, gpus_in_use, versions
from ..instrument.endpoint import Endpoint, SocketLine
from ..instrument.guard import is_from_handler, never_destroy
from ..instrument.memory_history import MemoryHistory, observe
from ..instrument.pipes import Sent
from ..instrument.reporter import Reports
from ..instrument.state_sender import StateSender
from ..levers.training_objects import Redirects, TrainingObjects
from ..protocol.session import Notice
from ..protocol.training import (
    TRAINING_ENDED,
    Aside,
    Hello,
    Offered,
    Phase,
    State,
    TrainingProcess,
)
from ..rendezvous import Rendezvous
from ..training.command_loop import CommandLoop
from ..training.commanded import rank
from ..training.tracing import Tracing
from .beginning import Beginning
from .discovery import found_line
from .tracker import Tracker
from .training import FollowedLevers, ScriptTraining, job

DUE_EVERY_S = 0.025
"""Seconds between two looks at the socket. A system call in each step would cost short steps more
than some levers gain."""
MOST_KEPT = 5_000
"""Steps that a new training is measured without a dashboard: it keeps them for the first one, which
may take seconds to begin, however long a step takes."""
LAST_STEPS_S = 0.2
"""Seconds that the process waits at its end for the device to finish the steps to be reported, and
again for the loss of the last one."""

MakeLevers: TypeAlias = Callable[[TrainingObjects, Redirects], FollowedLevers]


P = ParamSpec("P")


def _guarded(
    method: Callable[Concatenate["Driver", P], None],
) -> Callable[Concatenate["Driver", P], None]:
    """Do nothing once gpudash is off; a failure turns it off."""

    @wraps(method)
    def guarded(self: "Driver", /, *args: P.args, **kwargs: P.kwargs) -> None:
        if self.is_off or self._is_captured:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # no exception of ours may reach the script
            if is_from_handler(error):
                raise
            self._give_up(first_line(error))

    return guarded


class Driver:
    """The tracker's observer. Its methods are called on the thread that trains."""

    def __init__(
        self, rendezvous: Rendezvous, phases: tuple[Phase, ...], make_levers: MakeLevers
    ) -> None:
        self.tracker: Tracker
        """Set by `start`, which creates both."""
        self._rendezvous = rendezvous
        self._phases = phases
        self._make_levers = make_levers
        self._training: ScriptTraining | None = None
        self.trainings = 0
        """Until now."""
        self._endpoint: Endpoint | None = None
        self._line: SocketLine | None = None
        self._commands: CommandLoop | None = None
        self._reports: Reports | None = None  # while measuring
        self._ready_s = 0.0  # when measuring began, or the first step if that is known
        self._offered: Offered | None = None  # as it was sent last
        self._aside: tuple[float, Aside] | None = None  # since when
        self._life: StateSender | None = None  # as the dashboard knows it
        self._border_s = 0.0  # after the newest step's border
        self._due_s = 0.0
        self._border_due_s = 0.0
        self._at_exit: Finalize[None] | None = None
        self.is_off = False
        """Whether gpudash has failed here."""
        self._restores = False  # levers are to be put back at the next border
        self._beginning = Beginning({})

    # ── events from the tracker ─────────────────────────────────────────────────────────

    def border(self, _step: int) -> None:
        self._border_s = time.monotonic()
        # its own due time: a step's last hook may always come just before its border
        is_due = self._border_s >= self._border_due_s
        is_busy = self._commands is not None and self._commands.is_busy
        if is_due or is_busy or self._beginning.waits:
            self._border_due_s = self._border_s + DUE_EVERY_S
            self._between_steps()
            self._border_s = time.monotonic()
        if self._restores and not self._is_captured:
            self._restore()

    @_guarded
    def idle(self) -> None:
        """Report if it is due. Called where no step comes for long."""
        if self._reports is not None and time.monotonic() >= self._due_s:
            self._serve()

    @_guarded
    def loads(self) -> None:
        """Tell new loader workers before they take time that would count as others'."""
        if self._commands is not None:
            self._commands.tell_loaders()

    @_guarded
    def begins_anew(self) -> None:
        """Have a dashboard meet the new training as that of another process."""
        self._part("another training has begun")

    def failed(self, what: str, error: BaseException) -> None:
        if not self.is_off:
            self._give_up(f"its hook on {what} failed: {first_line(error)}")

    # ── life of the driver ──────────────────────────────────────────────────────────────

    def close(self) -> None:
        with contextlib.suppress(Exception):
            if self._reports is not None and self._line is not None:
                self.tracker.finish()
                self._reports.send_last(self.tracker.meter.steps, self.tracker.meter.samples)
            self._hang_up(TRAINING_ENDED)

    def end(self) -> None:
        """Put the levers back and follow no training any more, while the process goes on."""
        self.flush()
        with contextlib.suppress(Exception):
            self._part("gpudash has been taken out of this notebook")
        self.is_off = True
        if self._at_exit is not None:
            self._at_exit.cancel()
            self._at_exit = None

    def forget(self) -> None:
        """Drop, in a forked child, what belongs to the parent. A training there is new."""
        with contextlib.suppress(Exception):
            if self._line is not None:
                self._line.close()
            if self._endpoint is not None:
                self._endpoint.forget()
            never_destroy(*vars(self).values())
            self._training = self._endpoint = self._line = self._commands = None
            self._reports = self._aside = self._life = None
            self.tracker.meter.active = False
            self._due_s = self._border_due_s = 0.0

    @property
    def _is_captured(self) -> bool:
        return self._training is not None and self._training.is_captured

    def _part(self, why: str) -> None:
        self._hang_up(why)
        self._restore()
        self._training = self._reports = self._offered = self._aside = None

    def _give_up(self, reason: str) -> None:
        self.is_off = self._restores = True
        with contextlib.suppress(Exception):
            self.tracker.meter.active = False
            if self._line is None:  # nobody listens yet
                self._rendezvous.mark("failed", reason)
            why = f"gpudash stopped measuring: {reason}"
            self._send(Notice(text=f"{why}; the training goes on"))
            self._hang_up(why)

    def _restore(self) -> None:
        self._restores = False
        with contextlib.suppress(Exception):
            Tracing.abandon_newest()
        with contextlib.suppress(Exception):
            if self._training is not None:
                self._training.levers.restore()

    def _hang_up(self, why: str) -> None:
        if self._commands is not None:
            self._commands.dismiss(why)
        if self._line is not None:
            self._line.close()
        if self._endpoint is not None:
            self._endpoint.close()
        self._line = self._commands = self._life = self._endpoint = None

    # ── the training ────────────────────────────────────────────────────────────────────

    @_guarded
    def found(self, found: TrainingObjects) -> None:
        if self._training is None:
            levers = self._make_levers(found, self.tracker.meter.redirects)
            self._training = ScriptTraining(self.tracker.meter, found, levers)
            self._beginning = Beginning(self._rendezvous.begins_with)
            self.trainings += 1
            self._rendezvous.mark("trained")
            self._endpoint = Endpoint(self._rendezvous.socket(os.getpid()))
            with contextlib.suppress(OSError):
                stack_server.answer(self._rendezvous)  # here too, for a forked child
            observe(found.device, _weakly(self._ran_out))
            if self._at_exit is None:
                # like `atexit`, but also in processes of multiprocessing
                self._at_exit = Finalize(None, self.close, exitpriority=0)
            self._measure(self.tracker.meter.first_began_s)
            return
        before = self._training.levers.settings
        self._training.found = found
        self._training.levers.update(found)
        offered, self._offered = self._offered, self._offer(self._training)
        if self._offered != offered:
            self._send(self._offered)
        if self._commands is not None:
            self._commands.notice(before)

    def _ran_out(self, asked_bytes: int) -> None:
        if self._commands is not None:
            self._commands.ran_out(asked_bytes)

    def _measure(self, began_s: float | None = None, *, after: int = 0) -> None:
        """Measure from the next step on; `after` are the steps so far, unless they are told."""
        training, meter = self._training, self.tracker.meter
        clock, losses = meter.running, meter.losses
        assert training is not None
        assert losses is not None
        clock.finished()
        clock.counted()
        self._ready_s = time.monotonic() if began_s is None else began_s
        self._reports = Reports(
            clock,
            losses,
            lambda: ({}, 0),
            self._await_last,
            self._send,
            partial(device_memory, training.device),
            self.tracker.collectives,
        )
        if after:
            self._reports.begin_after(after, self.tracker.meter.samples)
        training.watch()

    def _await_last(self) -> None:
        meter, reports = self.tracker.meter, self._reports
        clock, losses = meter.running, meter.losses
        assert losses is not None
        assert reports is not None
        until_s = time.monotonic() + LAST_STEPS_S
        while (clock.enqueued or losses.is_reading) and time.monotonic() < until_s:
            reports.look()

    @_guarded
    def _between_steps(self) -> None:
        training = self._training
        if training is None:
            return
        if self._beginning.waits and self._reports is not None:
            self._beginning.turn(training, self._reports, partial(self._state, training))
        if time.monotonic() >= self._due_s:
            self._serve()
        commands = self._commands
        if commands is None:
            if self._reports is not None and training.step >= MOST_KEPT:
                self._stop_measuring()
            return
        commands.turn()
        while commands.paused:
            commands.rest()
            self._serve()
            commands.turn()
        training.slowing.step()
        if commands.is_over:
            self._stop_measuring()

    @_guarded
    def flush(self) -> None:
        if self._reports is not None and self._line is not None:
            self._reports.send_last(self.tracker.meter.steps, self.tracker.meter.samples)

    @_guarded
    def look(self) -> None:
        if time.monotonic() < self._due_s:
            return
        self._serve()
        commands = self._commands
        if commands is not None and self._line is not None and self._line.gone:
            commands.turn()
            if commands.is_over:
                aside = self._aside
                self._stop_measuring()
                self._aside = aside  # for the next dashboard

    def _stop_measuring(self) -> None:
        self._line = self._commands = self._life = self._reports = self._aside = None
        if self._training is not None:
            self._training.unwatch()

    @_guarded
    def aside(self, why: Aside | None) -> None:
        training = self._training
        if training is None:
            return
        began_s = self._border_s
        if why == "idle":
            began_s = time.monotonic()
            if self._commands is not None:
                self._commands.halt()
            self.flush()
        if self._aside is not None:
            if self._aside[1] == "idle" and self._commands is not None:
                self._commands.go_on()
            began_s, self._aside = time.monotonic(), None
            self._border_s = began_s  # an aside that follows without a step in between begins here
            if self._life is not None:
                self._life.resume(began_s)
        if why is not None:
            self._aside = began_s, why
            if self._life is not None:
                self._life.pause(began_s, training.step, why)

    # ── the dashboard ───────────────────────────────────────────────────────────────────

    def _serve(self) -> None:
        own_s, began_s = time.thread_time(), time.monotonic()
        self._due_s = began_s + DUE_EVERY_S
        if self._training is None or self._endpoint is None:
            return
        if self._commands is not None:
            self._commands.read()
            if self._commands.is_tracing:  # traced steps are in no report
                return
        is_served = self._line is not None and self._line.gone  # its commands are in progress
        if not (is_served or self._beginning.waits):
            self._admit(self._training, self._endpoint.accept())
        reports = self._reports
        if reports is None:
            return
        if self._line is None:
            reports.look()
            return
        reports.spent_s += time.thread_time() - own_s
        if began_s >= reports.due_s:
            reports.send()

    def _admit(self, training: ScriptTraining, connection: socket.socket | None) -> None:
        if connection is None:
            return
        if self._line is None:
            self._greet(SocketLine(connection, rank()), training)
        else:
            connection.close()

    def _greet(self, line: SocketLine, training: ScriptTraining) -> None:
        self._line = line
        if self._reports is None:
            self._measure(after=training.step)
        assert self._reports is not None
        self._send(Hello(pid=os.getpid(), job=job() if training.is_shared else ""))
        training.levers.update(training.found)  # the script may have changed what it had
        self._offered = self._offer(training)
        self._send(self._offered)
        self._life = StateSender(self._state(training), self._send)
        if self._beginning.refused is not None:
            self._send(self._beginning.refused)
        if self._aside is not None:
            self._life.pause(self._aside[0], training.step, self._aside[1])
        history = MemoryHistory(training.device, training.owned, line.send)
        self._commands = CommandLoop(line, self._life, training, self._reports, history)

    def _state(self, training: ScriptTraining) -> State:
        several = training.is_shared
        return State(
            at_s=self._ready_s,
            phase="training",
            process=TrainingProcess(
                pid=os.getpid(),
                ready_s=self._ready_s,
                device=describe_device(training.device),
                versions=versions(),
                number=self.trainings,
                phases=tuple(one for one in self._phases if several or one.name != "communication"),
                world_size=training.world_size,
                gpus=gpus_in_use(),
                threads=torch.get_num_threads(),
                node=socket.gethostname() if several else "",
            ),
            workload=Path(*sys.argv[:1]).name,  # a script may have emptied it
            segment=training.segment,
            settings=training.settings,
            requested=dict(training.requested),
            warmup_steps=training.levers.warmup_steps,
            loader_pids=loader_workers.pids(),
        )

    def _offer(self, training: ScriptTraining) -> Offered:
        found = training.found
        return Offered(
            found=found_line(found), levers=training.levers.offers, complete=found.complete
        )

    def _send(self, event: Sent) -> None:
        if self._line is not None:
            self._line.send(event)


def _weakly(method: Callable[[int], None]) -> Callable[[int], None]:
    """Return a function that calls the method for as long as its object lives."""
    weak = weakref.WeakMethod(method)

    def call(argument: int) -> None:
        living = weak()
        if living is not None:
            living(argument)

    return call
