"""One workload being trained: its halves, its feed of batches, its schedule, its levers.

Levers are changed between two steps. What a change costs follows from what it touches: a
schedule is swapped at once, a feed is built anew at the cursor, and only a rebuilt model
starts from new weights. Everything else — weights, optimizer, data order — lives on.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from workloads import Entry
from workloads.data import Feed, available_host_bytes, check_host_memory, make_feed
from workloads.levers import LeverError, Value, find, resolve
from workloads.schedule import DualStream, Schedule, Serial
from workloads.workload import Mark, Workload, unmarked


@dataclass(frozen=True)
class Trained:
    """One step as the host enqueued it; the device may not have finished it."""

    loss: Tensor
    """Shape (), on the device."""
    samples: int


def pick_device(name: str) -> torch.device:
    """Return the device that `auto`, `cpu`, `cuda` or `cuda:N` names. Raises LeverError."""
    count = torch.cuda.device_count()
    if name == "auto":
        return torch.device("cuda:0" if count else "cpu")
    if name == "cpu":
        return torch.device("cpu")
    valid = ", ".join(["auto", "cpu", *(f"cuda:{i}" for i in range(count))])
    kind, _, index = name.partition(":")
    if kind != "cuda" or not (name == "cuda" or index.isdigit()) or int(index or 0) >= count:
        missing = "" if count else " (torch sees no CUDA device here)"
        raise LeverError(f"device {name!r} is not valid; valid: {valid}{missing}")
    return torch.device("cuda", int(index or 0))


class Training:
    """A workload, its feed and its schedule, stepped by whoever owns the loop."""

    def __init__(self, entry: Entry, settings: Mapping[str, str], device: torch.device) -> None:
        self._entry = entry
        self._kind = entry.build()
        self.device = device
        if device.type == "cuda":
            torch.cuda.set_device(device)
        self.trained_steps = 0
        self.settings: dict[str, str] = {}
        self._cursor = 0  # samples trained on since the model was built
        self._feed: Feed | None = None
        self._settle(resolve(entry.levers, settings))
        self._workload = self._build_workload()
        self._feed = self._build_feed()
        self._schedule = self._build_schedule()

    @property
    def pending(self) -> int:
        """How many batches are prepared and not trained on."""
        return self._schedule.pending

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about these settings on this device."""
        pinned = self._values["pin_memory"] and self.device.type == "cpu"
        return (
            *self._settle_notes,
            *([self._schedule.note] if self._schedule.note else []),
            *(["pin_memory=on: does nothing on a CPU"] if pinned else []),
        )

    def step(self, mark: Mark = unmarked) -> Trained | None:
        """Take one batch through the schedule; return the step trained meanwhile, if any."""
        assert self._feed is not None
        batch = next(self._feed)
        return self._count(self._schedule.step(batch, mark))

    def drain(self, mark: Mark = unmarked) -> Trained | None:
        """Train on what the schedule has prepared ahead."""
        return self._count(self._schedule.drain(mark))

    def check(self, changes: Mapping[str, str]) -> dict[str, str]:
        """Return the settings that `changes` leads to. Raises LeverError, also for the same."""
        settings = resolve(self._entry.levers, {**self.settings, **changes})
        settled, _ = self._kind.settle(settings, self.device)
        if settled == self.settings:
            asked = ", ".join(f"{name}={value}" for name, value in changes.items())
            raise LeverError(f"{asked}: nothing changes")
        self._check_memory(settled)
        return settled

    def change(self, changes: Mapping[str, str]) -> None:
        """Put other settings in force; nothing may be pending. Raises LeverError, unchanged."""
        assert not self.pending, "drain first"
        wanted = self.check(changes)
        changed = [name for name in wanted if wanted[name] != self.settings[name]]
        effects = {find(self._entry.levers, name).effect for name in changed}
        self._settle(wanted)
        if effects & {"new loader", "rebuilt model"}:
            self._rebuild(model="rebuilt model" in effects)
        self._schedule = self._build_schedule()

    def recover(self, settings: Mapping[str, str]) -> None:
        """Go back to `settings` after a step failed half-way; its batch is taken again."""
        self._settle(dict(settings))
        self._rebuild(model=False)
        self._schedule = self._build_schedule()

    def synchronize(self) -> None:
        """Wait until the device has finished everything enqueued."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # sync: the caller asks for it

    def close(self) -> None:
        """End loader workers."""
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def _count(self, loss: Tensor | None) -> Trained | None:
        if loss is None:
            return None
        samples = int(self._values["batch_size"])
        self.trained_steps += 1
        self._cursor += samples
        return Trained(loss, samples)

    def _settle(self, settings: dict[str, str]) -> None:
        settled, self._settle_notes = self._kind.settle(settings, self.device)
        self._check_memory(settled)
        self.settings = settled
        self._values = self._parse(settled)

    def _parse(self, settings: Mapping[str, str]) -> dict[str, Value]:
        return {lever.name: lever.parse(settings[lever.name]) for lever in self._entry.levers}

    def _check_memory(self, settings: Mapping[str, str]) -> None:
        values = self._parse(settings)
        batch, training = self._kind.host_bytes(values, self.device)
        check_host_memory(values, batch, training, available_host_bytes())

    def _rebuild(self, *, model: bool) -> None:
        self.synchronize()  # sync: old batches and weights are let go of below
        self.close()
        if model:
            self._cursor = 0
            self._workload = self._build_workload()
        self._feed = self._build_feed()

    def _build_workload(self) -> Workload:
        return self._kind(self._values, self.device)

    def _build_feed(self) -> Feed:
        return make_feed(self._workload.dataset, self._values, self.device, self._cursor)

    def _build_schedule(self) -> Schedule:
        if self._values["pipelined"]:
            return DualStream(self._workload, self.device)
        return Serial(self._workload)
