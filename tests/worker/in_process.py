"""The real loop in this process, on a workload that does nothing but what a test asks for."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec
import torch
from torch import Tensor, nn

from gpudash.instrument.pipes import CommandPipe
from gpudash.protocol import Changed, Command, Event, Plan, Progress, Step, Stop
from gpudash.worker.loop import Loop
from workloads import CATALOGUE, Entry
from workloads.levers import Value
from workloads.training import Training
from workloads.workload import Batch, Mark, Phase, Prepared, Samples

PATIENCE_S = 30.0
SETTINGS = {"batch_size": "2", "data": "cached", "model_scale": "small"}


class Zeros(Samples):
    """Samples that hold nothing."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Batch:
        return (torch.zeros(1),)


def nothing(_values: Mapping[str, Value]) -> None:
    """Do nothing."""


@dataclass(frozen=True, kw_only=True)
class FakeEntry(Entry):
    """An entry whose workload does what its fields say, with the values of the levers."""

    name: str = "fake"
    summary: str = "Nothing."
    source: str = "this file"
    levers: tuple = CATALOGUE["encdec"].levers
    module: str = ""
    prepares: str = "prepare"
    on_cpu: Mapping[str, str] = field(default_factory=lambda: {"precision": "fp32"})
    during: Mapping[Phase, Callable[[Mapping[str, Value]], None]] = field(default_factory=dict)
    """What is done in a phase; `idle` stands for after the step, in no phase."""
    building: Callable[[Mapping[str, Value]], None] = nothing
    """What is done when a batches is built."""

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


class Run:
    """A loop, what is said to it and what it says. `react` hears each event, and may send."""

    def __init__(
        self,
        entry: Entry,
        react: Callable[["Run", Event], None],
        settings: Mapping[str, str] = SETTINGS,
        plan: Plan | None = None,
    ) -> None:
        self.training = Training(entry, settings, torch.device("cpu"))
        self.events: list[Event] = []
        self._react = react
        reading, self._writing = os.pipe()
        self._pipes = (reading, self._writing)
        plan = plan or Plan(workload="fake", settings={}, duration_s=PATIENCE_S)
        self._loop = Loop(self.training, plan, CommandPipe(reading), self._hear)

    def send(self, command: Command) -> None:
        """Send a command, as the parent would."""
        os.write(self._writing, msgspec.json.encode(command) + b"\n")

    def stop(self) -> None:
        """Ask it to end."""
        self.send(Stop(id=0))

    def until_stopped(self, *commands: Command) -> "Run":
        """Run it with these commands waiting; return what it has become."""
        for command in commands:
            self.send(command)
        try:
            self._loop.run()
        finally:
            self.training.close()
            for fd in self._pipes:
                os.close(fd)
        return self

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self._react(self, event)

    def of(self, kind: type) -> list:
        """Return its events of this kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def steps(self) -> list[Step]:
        """Every step reported."""
        return [step for event in self.of(Progress) for step in event.steps]

    @property
    def entered(self) -> list[int | None]:
        """The block that each change belongs to; None for a change outside blocks."""
        return [event.block for event in self.of(Changed)]
