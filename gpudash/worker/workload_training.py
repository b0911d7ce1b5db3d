"""A workload as the loop that obeys sees it: a script whose levers are richer.

It keeps what memory settings needed, which explains why others do not fit.
"""

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

import msgspec
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from gpudash import format as fmt
from gpudash.forecast import Need, forecast
from gpudash.instrument.clock import Mark
from gpudash.instrument.collectives import Collectives, collectives_of
from gpudash.instrument.device import (
    DeviceMemory,
    capacity_mib,
    device_memory,
    give_back,
    reset_peak,
)
from gpudash.instrument.last_gradient import LastGradient
from gpudash.instrument.memory_history import MemoryHistory
from gpudash.instrument.pipes import Sent
from gpudash.instrument.reporter import Reports, instruments
from gpudash.instrument.slowing import Slowing
from gpudash.instrument.wire import FinishedStep
from gpudash.levers.process import ProcessLevers
from gpudash.process_levers import split
from gpudash.protocol.commands import Plan
from gpudash.protocol.inspections import MemoryOwners
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Note
from gpudash.training.block_queue import difference
from gpudash.training.commanded import CommandedTraining, OutOfMemory, Refusal, Return, phrase
from gpudash.worker.phases import COMMUNICATION, PHASES, phases_of_ranks
from workloads.levers import LeverError
from workloads.memory import is_out_of_memory
from workloads.own.loading import failure
from workloads.training import Training


class _MemoryNeeds:
    """The needs of one training, by batch size for equal other settings."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._needs: dict[frozenset[tuple[str, str]], dict[int, Need]] = {}

    def note(self, settings: Settings, memory: DeviceMemory) -> None:
        if memory.peak_mib is not None and memory.reserved_mib is not None:
            others, batch_size = _by_batch_size(settings)
            need = Need(memory.peak_mib, memory.reserved_mib)
            self._needs.setdefault(others, {})[batch_size] = need

    def why_not(self, failed: Settings, known: MemoryOwners | None) -> Iterator[str]:
        others, _ = _by_batch_size(failed)
        expected = forecast(self._needs.get(others, {}), capacity_mib(self._device))
        if expected is not None:
            yield str(expected)
        largest = next((one for one in known.owners if one.file), None) if known else None
        if largest is not None:
            place = fmt.source_line(largest.file, largest.line)
            yield f"most at {place}, {fmt.memory(largest.mib)} of {largest.use}"


def _by_batch_size(settings: Settings) -> tuple[frozenset[tuple[str, str]], int]:
    others = frozenset(one for one in settings.items() if one[0] != "batch_size")
    return others, int(settings["batch_size"])


ResultT = TypeVar("ResultT")
MIN_AHEAD = 2
WATCHED_STEPS = 2
"""Steps after a start or a change whose allocations are recorded, in case memory runs out. The
second one has all that a step needs."""


class _CommunicationMarks:
    """Marks exposed communication in the backward pass of a module with averaged gradients."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._last = LastGradient(module, self._mark_communication, self._mark_backward)
        self._mark: Mark = _unmarked

    def marked(self, mark: Mark) -> Mark:
        """Return a mark for an iteration, which also marks the end of the last gradient."""
        self._mark = mark
        return self._begin

    def collectives(self) -> Collectives:
        if isinstance(self.module, DistributedDataParallel):
            return collectives_of(self.module)
        return Collectives()

    def _begin(self, phase: str, /) -> None:
        if phase == "optimizer":
            self._last.end()
        self._mark(phase)
        if phase == "backward":
            self._last.begin()

    def _mark_communication(self) -> None:
        self._mark(COMMUNICATION)

    def _mark_backward(self) -> None:
        self._mark("backward")


def _unmarked(_phase: str, /) -> None: ...


class WorkloadLevers:
    """The levers of a workload, and those of its process."""

    def __init__(self, training: Training, workload: str, requested: Settings) -> None:
        self._training = training
        self._workload = workload
        self._process = ProcessLevers()
        self._process.apply(requested)
        self._first = self.settings

    @property
    def settings(self) -> Settings:
        return self._training.settings | self._process.settings

    @property
    def warmup_steps(self) -> int:
        return self._training.warmup_steps

    @property
    def burst_steps(self) -> int:
        return self._training.burst_steps

    def resolve(self, changes: Settings) -> Settings:
        own = self._or_refuse(lambda: self._training.resolve(split(changes)[0]))
        return own | self._process.resolve(changes)

    def needs_call(self, wanted: Settings) -> bool:  # noqa: ARG002  # as a script's
        """Return False: settings are tried out by training with them."""
        return False

    def enter(self, wanted: Settings) -> None:
        """Make the settings active. Raises Refusal; the workload may be half rebuilt then."""
        self._or_refuse(lambda: self._training.enter(split(wanted)[0]))
        self._process.apply(wanted)

    def begins(self, *, in_blocks: bool, anew: bool) -> None:  # noqa: ARG002  # as a script's
        """See Levers. All batches that may be there already are warm-up in any case."""
        self._training.keep_loaders(keeps=in_blocks)

    def restore(self) -> None:
        self.recover(self._first)

    def recover(self, settings: Settings) -> None:
        """Go back to these settings after others have failed half-way."""
        self._training.recover(split(settings)[0])
        self._process.apply(settings)

    def _or_refuse(self, act: Callable[[], ResultT]) -> ResultT:
        """Raise Refusal also for an error of the user's code."""
        try:
            return act()
        except LeverError as error:
            refusal = Refusal(str(error))
        except Exception as error:  # noqa: BLE001  # the user's code may raise any
            if is_out_of_memory(error):
                refusal = OutOfMemory("out of memory")
            else:
                traceback.print_exc()
                refusal = Refusal(failure(error, self._workload))
        raise refusal  # here the traceback is freed, whose frames may hold tensors


class WorkloadTraining(CommandedTraining):
    """One workload being trained, with its instruments and levers; a loop has it take steps."""

    levers: WorkloadLevers

    def __init__(self, training: Training, plan: Plan, send: Callable[[Sent], None]) -> None:
        super().__init__()
        self._training = training
        self._world_size = plan.nproc
        self.levers = WorkloadLevers(training, plan.workload, plan.settings)
        self.requested = plan.settings
        self.slowing = Slowing(training.device)
        phases = phases_of_ranks() if self.is_shared else PHASES
        self.clock, losses = instruments(training.device, phases)
        self.reports = _Reports(
            self.clock,
            losses,
            training.input_report,
            training.synchronize,
            send,
            partial(device_memory, training.device),
            self._collectives,
        )
        self.reports.on_newest = self._note
        self.history = MemoryHistory(training.device, training.owned, send)
        self.history.watch(WATCHED_STEPS)
        self.needs = _MemoryNeeds(training.device)
        self.is_measured = True
        """Whether steps are measured; False: only trained."""
        self.enough: float = MIN_AHEAD
        """Enqueued steps that keep the device busy; set by the loop, from this on."""
        self._gradient_sync = _CommunicationMarks(training.averaged) if self.is_shared else None
        self.segment_from = 0, time.monotonic()
        """Batches taken before the present segment, and when it began."""
        self._begin: Callable[[], Mark] = self.clock.begin
        if self.is_shared:
            self._begin = self._begin_in_job
        self._noted = set(training.notes.values())  # the first state has these notes
        # settings with which a warm step finished, and as they were requested, `auto` kept
        self._good: tuple[Settings, Settings] = self.settings, plan.settings
        self._warm_from_step = 0  # after this step the present settings count as good

    # ── what it is ──────────────────────────────────────────────────────────────────────

    @property
    def device(self) -> torch.device:
        return self._training.device

    @property
    def world_size(self) -> int:
        return self._world_size

    @property
    def precision(self) -> str:
        return self._training.settings.get("precision", "")

    @property
    def is_compiled(self) -> bool:
        """A graph replays the operators, which are then not counted."""
        settings = self._training.settings
        return "on" in (settings.get("compile"), settings.get("cuda_graph"))

    @property
    def notes(self) -> tuple[Note, ...]:
        return tuple(Note(lever=lever, text=text) for lever, text in self._training.notes.items())

    def owned(self) -> tuple[Iterable[nn.Module], Iterable[Optimizer]]:
        return self._training.owned()

    # ── its steps ───────────────────────────────────────────────────────────────────────

    @property
    def step(self) -> int:
        return self._training.trained_steps

    @property
    def taken(self) -> int:
        """Batches taken: on two streams one is prepared ahead."""
        return self._training.trained_steps + self._training.pending

    @property
    def is_filled(self) -> bool:
        training = self._training
        return training.pending > 0 or training.settings.get("pipelined") != "on"

    def take(self) -> None:
        training = self._training
        if self.slowing.is_on:
            self.slowing.step()
        if not self.is_measured:
            training.step()
            return
        trained = training.step(self._begin())
        self.clock.host.fetched(training.data_cpu_s)
        if trained is None:  # on two streams: a batch was only prepared
            self.clock.end(None, data_s=training.data_s)
        else:
            self.clock.end(training.trained_steps, trained.samples, trained.loss, training.data_s)

    def drain(self) -> None:
        training = self._training
        if training.pending and self.is_measured:
            trained = training.drain(self._begin())
            assert trained is not None, "it was pending"
            self.clock.end(training.trained_steps, trained.samples, trained.loss)
        else:
            training.drain()

    def at_marks(self, call: Mark | None, renames: Mark | None = None) -> None:
        self.clock.at_marks, self.clock.at_renames = call, renames

    def interrupt(self) -> None:
        """Restart the clock and the pace: the time until now is not part of the next step."""
        self.clock.interrupt()
        self.enough = MIN_AHEAD

    def watch(self) -> None:
        self.is_measured = True
        self.interrupt()

    def unwatch(self) -> None:
        self.is_measured = False

    def synchronize(self) -> None:
        self._training.synchronize()  # sync: around a profile, or a block under the wall clock

    def settle(self) -> None:
        self.drain()
        self.synchronize()

    def samples_of(self, steps: int) -> int:
        return steps * int(self._training.settings["batch_size"])

    def profiled(self) -> None:
        """Begin a new peak of memory: the profiler's short benchmarks took some too."""
        reset_peak(self.device)

    def _begin_in_job(self) -> Mark:
        assert self._gradient_sync is not None
        return self._gradient_sync.marked(self.clock.begin())

    def _collectives(self) -> Collectives:
        return Collectives() if self._gradient_sync is None else self._gradient_sync.collectives()

    # ── its settings ────────────────────────────────────────────────────────────────────

    def begin_segment(self) -> None:
        super().begin_segment()
        training = self._training
        self.clock.segment = self.segment
        self.segment_from = self.taken, time.monotonic()
        self.flops = None
        reset_peak(self.device)
        self._warm_from_step = training.trained_steps + training.warmup_steps
        if self._gradient_sync is not None and self._gradient_sync.module is not training.averaged:
            self._gradient_sync = _CommunicationMarks(training.averaged)
        new = [note for note in training.notes.values() if note not in self._noted]
        self._noted.update(new)  # printed once, however often a comparison switches
        for note in new if self.speaks else ():
            print(note, flush=True)

    def enter(self, wanted: Settings, *, stays: bool) -> None:
        self.drain()
        if stays:
            # memory may run out in the warm-up; no step is measured in it
            self.history.watch(self.step + WATCHED_STEPS)
        batch_size = self._training.settings["batch_size"]
        self.levers.enter(wanted)
        if stays and batch_size != wanted["batch_size"]:
            give_back(self.device)

    def put_back(self, before: Settings, refusal: Refusal, *, entered: bool) -> Return:  # noqa: ARG002  # what worked counts
        """Raise the refusal if memory ran out under the settings that last worked."""
        good, requested = self._good_on_all()
        failed = self.settings
        if isinstance(refusal, OutOfMemory) and failed == good:
            raise refusal
        changes, restored = difference(good, failed), difference(failed, good)
        why, known = str(refusal), tuple[str, ...]()
        if isinstance(refusal, OutOfMemory):
            why = f"out of memory with {phrase(changes)}"
            known = tuple(self.needs.why_not(failed, self.history.report()))
        self.levers.recover(good)
        give_back(self.device)
        self.requested = requested
        reason = "; ".join((f"{why}: went back to {phrase(restored)}", *known))
        return Return(refusal.kind, reason, changes, restored)

    def may_go_back(self, error: Exception) -> bool:
        """Return whether a step ran out of memory, on all ranks, under settings to go back from."""
        if not is_out_of_memory(error):
            return False
        way = "back" if self.settings != self._good[0] else ""
        return self.decide(f"{self.segment}.memory", None, way).payload == "back"

    def _good_on_all(self) -> tuple[Settings, Settings]:
        """Return rank 0's good settings: ranks have seen different steps finish."""
        good = msgspec.json.encode(self._good).decode()
        decided = self.decide(f"{self.segment}.good", None, good)
        if decided.refusal is not None:
            raise RuntimeError(decided.refusal)
        self._good = msgspec.json.decode(decided.payload, type=tuple[Settings, Settings])
        return self._good

    def votes_on_way_back(self, changes: Settings) -> bool:  # noqa: ARG002  # on one rank any may fail half-way
        return True

    def _note(self, newest: FinishedStep) -> None:
        """Take the present settings for good ones once a warm step has finished with them."""
        if newest.segment == self.segment and newest.step > self._warm_from_step:
            self._good = self.settings, self.requested
            self.needs.note(self.settings, self.reports.memory)


class _Reports(Reports):
    """Tells its newest step here too."""

    on_newest: Callable[[FinishedStep], None]

    def send(self) -> FinishedStep | None:
        newest = super().send()
        if newest is not None:
            self.on_newest(newest)
        return newest
