"""The real loop in this process, on a workload that does only what a test sets."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec
import torch
from torch import Tensor, nn

from gpudash.instrument.pipes import CommandPipe, Sent
from gpudash.instrument.state_sender import StateSender
from gpudash.instrument.wire import StepReport, encoded
from gpudash.protocol.commands import Command, Plan, Stop
from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.training import Device, Progress, Step
from gpudash.worker.__main__ import of_process, ready
from gpudash.worker.loop import Loop
from tests.lives import told
from workloads import CATALOGUE, Entry
from workloads.levers import Value
from workloads.training import Training
from workloads.workload import Batch, Mark, Phase, Prepared, Samples

PATIENCE_S = 30.0
STEP_S = 0.0005
SETTINGS = {"batch_size": "2", "data": "cached", "model_scale": "small"}


class Zeros(Samples):
    """Empty samples."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Batch:
        return (torch.zeros(1),)


def nothing(_values: Mapping[str, Value]) -> None:
    """Do nothing."""


@dataclass(frozen=True, kw_only=True)
class FakeEntry(Entry):
    """An entry whose workload calls the functions in its fields with the levers' values."""

    name: str = "fake"
    summary: str = "Nothing."
    source: str = "this file"
    levers: tuple = CATALOGUE["encdec"].levers
    module: str = ""
    prepares: str = "prepare"
    on_cpu: Mapping[str, str] = field(default_factory=lambda: {"precision": "fp32"})
    during: Mapping[Phase, Callable[[Mapping[str, Value]], None]] = field(default_factory=dict)
    """Called in each phase; `idle` is after the step, in no phase."""
    building: Callable[[Mapping[str, Value]], None] = nothing
    """Called when the batches are built."""

    def build(self) -> type:
        """Return the workload."""

        class Fake:
            def __init__(self, values: Mapping[str, Value], _device: torch.device) -> None:
                self.model = nn.Linear(1, 1)
                self.configure(values)

            def configure(self, values: Mapping[str, Value]) -> None:
                self._values = values

            def samples(_self, values: Mapping[str, Value]) -> Samples:  # noqa: N805  # self is the entry
                self.building(values)
                return Zeros()

            @staticmethod
            def refusal(_values: Mapping[str, Value], _device: torch.device) -> None:
                return None

            @staticmethod
            def host_bytes(_values: Mapping[str, Value], _device: torch.device) -> tuple[int, int]:
                return 0, 0

            def prepare(self, batch: Batch, mark: Mark) -> Prepared:
                self._do(mark, "copy", "prepare")
                return batch

            def train(self, _prepared: Prepared, mark: Mark) -> Tensor:
                self._do(mark, "forward", "backward", "optimizer", "idle")
                return torch.zeros(())

            def _do(_self, mark: Mark, *phases: Phase) -> None:  # noqa: N805  # self is the entry
                for phase in phases:
                    mark(phase)
                    self.during.get(phase, nothing)(_self._values)

        return Fake


def work(_values: Mapping[str, Value]) -> None:
    """Take a step's time."""
    time.sleep(STEP_S)


def fits_3(values: Mapping[str, Value]) -> None:
    """Have memory for batches of three."""
    if values["batch_size"] == 4:
        raise torch.OutOfMemoryError("CUDA out of memory")
    work(values)


ENTRY = FakeEntry(during={"forward": work})
FITS_3 = FakeEntry(during={"forward": fits_3})


def stop_when(condition: "Callable[[Run, Event], object]") -> "Callable[[Run, Event], None]":
    """Return a reaction: a Stop at the first event that fits."""
    return lambda run, event: run.stop() if condition(run, event) else None


class Run:
    """A loop with its commands and events. `react` is called with each event, and may send."""

    def __init__(
        self,
        entry: Entry,
        react: Callable[["Run", Event], None] = lambda *_: None,
        settings: Mapping[str, str] = SETTINGS,
        plan: Plan | None = None,
    ) -> None:
        self.training = Training(entry, settings, torch.device("cpu"))
        self.events: list[Event] = []
        self._react: Callable[[Run, Event], None] = lambda *_: None
        reading, self._writing = os.pipe()
        self._pipes = (reading, self._writing)
        plan = plan or Plan(workload="fake", settings={}, duration_s=PATIENCE_S)
        process = of_process(Device(kind="cpu", name="CPU"), ())
        self._life = StateSender(ready(self.training, plan, process), self._receive)
        self._react = react
        self._loop = Loop(self.training, plan, CommandPipe(reading), self._life)

    def send(self, command: Command) -> None:
        """Send a command, as the parent would."""
        os.write(self._writing, msgspec.json.encode(command) + b"\n")

    def stop(self) -> None:
        """Send a Stop."""
        self.send(Stop(id=0))

    def until_stopped(self, *commands: Command) -> "Run":
        """Run the loop to its end with these commands waiting; return self."""
        for command in commands:
            self.send(command)
        try:
            self._loop.run()
        finally:
            self.training.close()
            for fd in self._pipes:
                os.close(fd)
        return self

    def _receive(self, sent: Sent) -> None:
        event = sent
        if isinstance(sent, StepReport):  # as the session reads it
            event = msgspec.json.decode(encoded(sent, 0, 0, 0.0), type=Envelope).body
        self.events.append(event)
        self._react(self, event)

    def of(self, kind: type | str) -> list:
        """Return the events of this class, or the states of this turn."""
        return told(self.events, kind)

    @property
    def steps(self) -> list[Step]:
        """Every step reported."""
        return [step for event in self.of(Progress) for step in event.steps]

    @property
    def entered(self) -> list[int | None]:
        """The block that each change belongs to; None for a change outside blocks."""
        return [event.block for event in self.of("changed")]
