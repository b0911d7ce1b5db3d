"""A training with a scripted tracker, and a dashboard on a thread."""

import contextlib
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from weakref import WeakKeyDictionary

import msgspec
import torch

from gpudash.instrument.collectives import Collectives
from gpudash.instrument.reporter import instruments
from gpudash.levers.training_objects import NewestCall, Root, TrainingObjects
from gpudash.protocol.commands import Command
from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.inspections import Timing
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Lever, Phase, Progress, Step
from gpudash.rendezvous import Rendezvous
from gpudash.script.driver import Driver
from gpudash.training.commanded import Refusal
from tests.answers import answered_by
from tests.lives import told

PATIENCE_S = 30.0
PHASES = tuple(
    Phase(name=name, label=name, lane="train")
    for name in ("forward", "backward", "communication", "optimizer")
)


class FakeLevers:
    """`precision` moves at once, `compile` after a rehearsal; some values are refused."""

    warmup_steps = 2
    burst_steps = 1

    def __init__(self, found: TrainingObjects, _redirects: object) -> None:
        self.found = found
        self.settings: Settings = {"precision": "fp32", "compile": "off"}
        self.offers = tuple(
            Lever(name=name, kind="choice", default=value, summary=name, source="torch")
            for name, value in self.settings.items()
        )
        self.entered: list[Settings] = []
        self.fails: type[Exception] | None = None

    def update(self, found: TrainingObjects) -> None:
        self.found = found

    def resolve(self, changes: Settings) -> Settings:
        unknown = changes.keys() - self.settings.keys()
        if unknown or "unknown" in changes.values():
            raise Refusal("there is no such value")
        return self.settings | changes

    def needs_call(self, wanted: Settings) -> bool:
        return wanted["compile"] == "on" and self.settings["compile"] == "off"

    def enter(self, wanted: Settings) -> None:
        if self.fails is not None:
            raise self.fails("out of order")
        if self.needs_call(wanted):
            assert self.found.roots[0].newest is not None, "the call that it asked for"
        if wanted["precision"] == "impossible":
            raise Refusal("a rehearsal failed")
        self.settings = dict(wanted)
        self.entered.append(self.settings)

    def timings(self) -> tuple[Timing, ...]:
        assert self.found.roots[0].newest is not None, "the call that is timed"
        return (Timing(lever="precision", value="bf16", before_ms=4.0, after_ms=2.0),)

    def why_no_delay(self) -> str | None:
        return "no DataLoader was seen"

    def begins(self, *, in_blocks: bool, anew: bool) -> None:
        pass

    def restore(self) -> None:
        self.settings = {"precision": "fp32", "compile": "off"}
        self.entered.append(self.settings)


class Script:
    """A training on the CPU, stepped by a test, with the driver as its observer."""

    def __init__(self, folder: Path, world_size: int = 1) -> None:
        self.clock, self.losses = instruments(torch.device("cpu"), PHASES)
        self.running = self.clock
        self.closely_until = 0.0
        self.border_at = 0
        self.redirects: WeakKeyDictionary = WeakKeyDictionary()
        self.active = False
        self.interrupts = 0
        self.failed: Callable[[str, BaseException], None] = lambda *_: None
        self.levers: FakeLevers | None = None
        self.driver = Driver(Rendezvous(folder), PHASES, self._levers)
        self.driver.tracker = self.meter = self
        self.steps = 0
        self.samples: int | None = None
        self.first_began_s: float | None = None
        self.newest_loss = 0.0
        self.active_in: list[bool] = []  # of each step
        self._world_size = world_size
        self._model = torch.nn.Linear(3, 1)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3)
        self.root = Root(self._model)

    def _levers(self, found: TrainingObjects, redirects: object) -> FakeLevers:
        self.levers = FakeLevers(found, redirects)
        return self.levers

    def interrupt(self) -> None:
        self.interrupts += 1
        self.clock.interrupt()

    def finish(self) -> None: ...

    def collectives(self) -> Collectives:
        return Collectives(mib=2.0)

    def begin(self) -> "Script":
        found = TrainingObjects(
            optimizer_refs=(weakref.ref(self._optimizer),),
            roots=(self.root,),
            feed=None,
            device=torch.device("cpu"),
            world_size=self._world_size,
            backwards=1,
            scaler=False,
        )
        self.driver.found(found)
        return self

    def step(self) -> None:
        active = self.active
        mark = self.clock.begin() if active else (lambda _: None)
        self.active_in.append(active)
        batch = torch.ones(4, 3)
        mark("forward")
        if self.root.keeps_calls:
            self.root.newest = NewestCall((batch,), {})
        loss = self._model(batch).square().mean()
        self.newest_loss = loss.item()
        mark("backward")
        loss.backward()
        mark("optimizer")
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.steps += 1
        if active:
            self.clock.end(self.steps, samples=len(batch), loss=loss.detach())
        self.driver.border(self.steps)

    def until(self, condition: Callable[[], object], pace_s: float = 0.004) -> None:
        """Train until the condition holds."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline_s, "it does not come to that"
            self.step()
            time.sleep(pace_s)

    def goes_on(self) -> None:
        """Train some steps."""
        end = self.steps + 10
        self.until(lambda: self.steps > end)

    def first(self, dashboard: "Dashboard", kind: type | str) -> Event:
        """Train until the dashboard has been told this, and return the first."""
        self.until(lambda: dashboard.of(kind))
        return dashboard.of(kind)[0]


class Dashboard:
    """Records what a dashboard gets; `react` may answer on its thread."""

    def __init__(
        self, path: Path, react: Callable[["Dashboard", Event], None] = lambda *_: None
    ) -> None:
        self.envelopes: list[Envelope] = []
        self.gone = False
        self._react = react
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        decoder, partial = msgspec.json.Decoder(Envelope), b""
        with contextlib.suppress(OSError):
            while received := self._socket.recv(1 << 16):
                *lines, partial = (partial + received).split(b"\n")
                for line in lines:
                    self.envelopes.append(decoder.decode(line))
                    self._react(self, self.envelopes[-1].body)
        self.gone = True

    def send(self, *commands: Command) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._socket.sendall(b"".join(msgspec.json.encode(one) + b"\n" for one in commands))

    def die(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def of(self, kind: type | str) -> list:
        return told((one.body for one in list(self.envelopes)), kind)

    @property
    def reported(self) -> list[Step]:
        return [step for event in self.of(Progress) for step in event.steps]


@contextlib.contextmanager
def script(folder: Path, **how: int) -> Iterator[Script]:
    """Begin a training that ends with the test."""
    made = Script(folder, **how)
    try:
        yield made.begin()
    finally:
        made.driver.close()


def connected(training: Script, folder: Path) -> Dashboard:
    """Return a dashboard that has had a report."""
    dashboard = Dashboard(path(folder))
    training.until(lambda: dashboard.reported)
    return dashboard


def path(folder: Path) -> Path:
    return folder / f"{os.getpid()}.sock"


def answered(dashboard: Dashboard) -> dict[int, list[str]]:
    """Return what answers each command."""
    return answered_by(envelope.body for envelope in list(dashboard.envelopes))
