"""One workload being trained: its batches, its schedule, its levers.

Levers are changed between two steps. A schedule is swapped at once, a batch source is rebuilt at
the cursor, and only a rebuilt model starts from new weights. Otherwise weights, optimizer and data
order are kept.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from workloads import Entry
from workloads.batches import (
    BatchSource,
    InputReport,
    LoaderBatches,
    LoaderSettings,
    batches_held,
    make_batches,
)
from workloads.compute_options import EAGER_BEFORE_CAPTURE, ComputeOptions, TrainStep
from workloads.levers import AUTO, Effect, LeverError, Value, phrase, resolve
from workloads.memory import available_host_bytes
from workloads.processes import ALONE, Processes, first_alone
from workloads.schedule import DualStream, Schedule, Serial, side_stream, training_stream
from workloads.workload import Mark, Workload, unmarked

WARMUP_STEPS = 2
"""Steps until the schedule is filled and the allocator has its blocks."""


class Trained(NamedTuple):
    """A step that the host has enqueued; the device may not have finished it."""

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
    if kind != "cuda" or not (name == "cuda" or index.isdecimal()) or int(index or 0) >= count:
        missing = "" if count else " (torch sees no CUDA device here)"
        raise LeverError(f"device {name!r} is not valid; valid: {valid}{missing}")
    return torch.device("cuda", int(index or 0))


class Training:
    """A workload with its batches and its schedule, stepped by a loop.

    It must be stepped on the thread that made it, whose current CUDA stream it sets for good.
    """

    def __init__(
        self,
        entry: Entry,
        settings: Mapping[str, str],
        device: torch.device,
        processes: Processes = ALONE,
    ) -> None:
        self._entry = entry
        self._processes = processes
        self._kind = entry.build()
        self.device = device
        if device.type == "cuda":
            torch.cuda.set_device(device)
            torch.cuda.set_stream(training_stream(device))
        self.trained_steps = 0
        self.data_s = self.data_cpu_s = 0.0
        """Time that the host waited for the newest batch, and its part on the CPU; 0 after a drain,
        which takes none."""
        on_cpu = {"model_scale": "small", **entry.on_cpu} if device.type == "cpu" else {}
        known = {lever.name for lever in entry.levers}
        self._chosen = {
            name: value
            for name, value in on_cpu.items()
            if name in known and settings.get(name, AUTO) == AUTO
        }
        self.settings = self._resolve({**settings, **self._chosen})
        self._check_memory(self.settings, available_host_bytes())
        self._side_stream = side_stream(device)
        self._cursor = 0  # samples trained on since the model was built
        self._skipped = 0  # skipped samples of closed batch sources, not reported yet
        self._keeps = False  # whether a loader that is left rests
        with first_alone(processes):  # it may write files
            self._workload = self._make_workload()
        self._workload.configure(self._values)
        if processes.count > 1 and not self._train_steps():
            raise LeverError(
                f"workload {entry.name}: a class of your own averages no gradients over several "
                "processes; valid with --nproc: a function"
            )
        self._built = self.settings  # what the workload was built with
        self._batches: BatchSource | None = self._build_batches()
        self._schedule = self._build_schedule()

    @property
    def pending(self) -> int:
        """Number of batches that are prepared and not trained on."""
        return self._schedule.pending

    @property
    def warmup_steps(self) -> int:
        """Number of steps after a start or a change that are slower than the following ones."""
        steps = WARMUP_STEPS
        if self.settings["cuda_graph"] == "on":
            steps += EAGER_BEFORE_CAPTURE + 1
        if self.settings["data"] == "loader":
            # prefetched batches hide the loader's rate until they are used up
            left = self._batches.left if isinstance(self._batches, LoaderBatches) else None
            steps += batches_held(self._values) if left is None else left
        return steps

    @property
    def burst_steps(self) -> int:
        """Number of batches that arrive at a time: loader workers start and finish together."""
        from_loader = self.settings["data"] == "loader"
        return max(1, int(self.settings["num_workers"])) if from_loader else 1

    @property
    def notes(self) -> dict[str, str]:
        """Remarks for the user about these settings on this device: lever → sentence."""
        notes = {
            name: f"{name}={value}: chosen for the CPU"
            for name, value in self._chosen.items()
            if self.settings[name] == value
        }
        if self._schedule.note:
            notes["pipelined"] = self._schedule.note
        if self._values["pin_memory"] and self.device.type == "cpu":
            notes["pin_memory"] = "pin_memory=on: does nothing on a CPU"
        if self._processes.count > 1:
            notes["batch_size"] = self._batch_note()
        return notes

    def _batch_note(self) -> str:
        own, count = int(self.settings["batch_size"]), self._processes.count
        note = f"batch_size={own}: of each of {count} processes, {own * count} samples in a step"
        return f"{note}; {self._entry.shared_loss}" if self._entry.shared_loss else note

    @property
    def chosen(self) -> dict[str, str]:
        """The active settings that differ from the levers' defaults."""
        return {
            lever.name: self.settings[lever.name]
            for lever in self._entry.levers
            if self.settings[lever.name] != lever.default_text
        }

    def step(self, mark: Mark = unmarked) -> Trained | None:
        """Take one batch through the schedule; return the step trained meanwhile, if any."""
        assert self._batches is not None
        began_s, began_cpu_s = time.perf_counter(), time.thread_time()
        batch = next(self._batches)
        self.data_s = time.perf_counter() - began_s
        self.data_cpu_s = time.thread_time() - began_cpu_s
        try:
            return self._count(self._schedule.step(batch, mark))
        except Exception:  # the weights may have been updated before it
            self._count(self._schedule.newest_loss)
            raise

    def drain(self, mark: Mark = unmarked) -> Trained | None:
        """Train on the pending batch, if there is one."""
        self.data_s = self.data_cpu_s = 0.0
        return self._count(self._schedule.drain(mark))

    def check(self, changes: Mapping[str, str]) -> dict[str, str]:
        """Return the settings after `changes`. Raises LeverError, also if nothing changes."""
        resolved = self.resolve(changes)
        if resolved == self.settings:
            raise LeverError(f"{phrase(changes)}: nothing changes")
        return resolved

    def resolve(self, changes: Mapping[str, str]) -> dict[str, str]:
        """Return the settings after `changes`. Raises LeverError for invalid ones."""
        resolved = self._resolve({**self.settings, **changes})
        if self._touched(self.settings, resolved, "new loader", "rebuilt model"):
            # the memory of the present settings is freed first
            held = sum(self._host_bytes(self.settings))
            self._check_memory(resolved, available_host_bytes() + held)
        return resolved

    def change(self, changes: Mapping[str, str]) -> None:
        """Resolve and apply changes; no batch may be pending. Raises LeverError."""
        self.enter(self.resolve(changes))

    def enter(self, wanted: Mapping[str, str]) -> None:
        """Apply resolved settings; no batch may be pending.

        Raises LeverError if building fails; then call `recover`.
        """
        assert not self.pending, "drain first"
        new_loader = self._touched(self.settings, wanted, "new loader", "rebuilt model")
        before, self.settings = self.settings, dict(wanted)
        if new_loader and not self._moved(before):
            self._rebuild()
        self._workload.configure(self._values)
        self._schedule = self._build_schedule()

    def keep_loaders(self, *, keeps: bool) -> None:
        """Let a loader that is left rest from now on, or end the one that does.

        While they are kept, a change of how batches are made begins after those that were asked for
        before: `warmup_steps` covers them.
        """
        self._keeps = keeps
        if isinstance(self._batches, LoaderBatches):
            self._batches.keep(keeps=keeps)

    def recover(self, settings: Mapping[str, str]) -> None:
        """Go back to `settings` after a step or a change has failed half-way.

        The first batch that was not trained on comes next. The weights are kept, unless a model of
        other settings was built since.
        """
        _drop_failed_backward()
        self.settings = dict(settings)
        self._rebuild()
        for part in self._train_steps() if self._processes.count > 1 else ():
            part.average_anew()
        self._workload.configure(self._values)
        self._schedule = self._build_schedule()

    def input_report(self) -> InputReport:
        """Return times and skipped samples of the batches since the last call."""
        made = self._batches.report() if self._batches is not None else InputReport({}, 0)
        skipped, self._skipped = self._skipped + made.skipped, 0
        return InputReport(transform_ms=made.transform_ms, skipped=skipped)

    def synchronize(self) -> None:
        """Wait until the device has finished everything enqueued."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # sync: requested by the caller

    def owned(self) -> tuple[list[nn.Module], list[Optimizer]]:
        """Return the modules and the optimizers that the workload holds."""
        held = [*vars(self._workload).values()]
        held += [one for thing in held for one in getattr(thing, "__dict__", {}).values()]
        modules = [one for one in held if isinstance(one, nn.Module)]
        return modules, [one for one in held if isinstance(one, Optimizer)]

    @property
    def averaged(self) -> nn.Module:
        """The module called in training; with several processes, one that averages gradients."""
        return self._train_steps()[0].module

    def _train_steps(self) -> list[TrainStep]:
        return [part for part in vars(self._workload).values() if isinstance(part, TrainStep)]

    def close(self) -> None:
        """End loader workers."""
        if self._batches is not None:
            self._skipped += self._batches.report().skipped
            self._batches.close()
            self._batches = None

    def _count(self, loss: Tensor | None) -> Trained | None:
        if loss is None:
            return None
        samples = int(self.settings["batch_size"])
        self.trained_steps += 1
        self._cursor += samples * self._processes.count
        return Trained(loss, samples)

    @property
    def _values(self) -> dict[str, Value]:
        return self._parse(self.settings)

    def _parse(self, settings: Mapping[str, str]) -> dict[str, Value]:
        return {lever.name: lever.parse(settings[lever.name]) for lever in self._entry.levers}

    def _resolve(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return every lever's value, `auto` resolved. Raises LeverError for invalid settings."""
        resolved = resolve(self._entry.levers, settings)
        if resolved.get("model_scale") == AUTO:
            resolved["model_scale"] = "full" if self.device.type == "cuda" else "small"
        values = self._parse(resolved)
        refusal = ComputeOptions.of(values).refusal(self.device) or self._kind.refusal(
            values, self.device
        )
        if refusal:
            raise LeverError(refusal)
        return resolved

    def _touched(
        self, before: Mapping[str, str], after: Mapping[str, str], *effects: Effect
    ) -> bool:
        """Return whether a lever with one of these effects differs."""
        return any(
            before[lever.name] != after[lever.name]
            for lever in self._entry.levers
            if lever.effect in effects
        )

    def _host_bytes(self, settings: Mapping[str, str]) -> tuple[int, int]:
        """Return the host bytes of the batches in flight, and of training on one of them."""
        values = self._parse(settings)
        batch, training = self._kind.host_bytes(values, self.device)
        return batches_held(values) * batch, training

    def _check_memory(self, settings: Mapping[str, str], available: int) -> None:
        """Raise LeverError if host memory would not suffice, before the system kills a process."""
        batches, training = self._host_bytes(settings)
        available //= self._processes.count  # the other processes need as much
        if batches + training > available:
            raise LeverError(
                f"batch_size={settings['batch_size']}: needs about "
                f"{(batches + training) / 2**30:,.1f} GiB of host memory, of which "
                f"{batches / 2**30:,.1f} for the batches in flight; "
                f"{available / 2**30:,.1f} GiB are available"
            )

    def _moved(self, before: Mapping[str, str]) -> bool:
        """Have the rest of the batches made by another loader, if only the loader differs."""
        levers = [one for one in self._entry.levers if one.effect != "next step"]
        others = [one.name for one in levers if one.name not in LoaderSettings._fields]
        is_same = all(before[name] == self.settings[name] for name in others)
        if not (self._keeps and is_same and isinstance(self._batches, LoaderBatches)):
            return False
        self._batches.move(LoaderSettings.of(self._values, self.device))
        return True

    def _rebuild(self) -> None:
        """Rebuild the batch source, and the model if the settings need another one."""
        self.synchronize()  # sync: old batches and weights are freed below
        self.close()
        if self._touched(self._built, self.settings, "rebuilt model"):
            self._workload = self._make_workload()
            self._built, self._cursor = self.settings, 0  # set even if configuring fails
            self._workload.configure(self._values)
        self._batches = self._build_batches()

    def _make_workload(self) -> Workload:
        return self._kind(self._values, self.device)

    def _build_batches(self) -> BatchSource:
        samples = self._workload.samples(self._values)
        made = make_batches(samples, self._values, self.device, self._cursor, self._processes)
        if isinstance(made, LoaderBatches):
            made.keep(keeps=self._keeps)
        return made

    def _build_schedule(self) -> Schedule:
        if self._values["pipelined"]:
            return DualStream(self._workload, self._side_stream)
        return Serial(self._workload)


def _drop_failed_backward() -> None:
    """Free what a failed backward pass left queued on this thread, by running another one."""
    torch.zeros((), requires_grad=True).backward()  # type: ignore[no-untyped-call]  # in torch
