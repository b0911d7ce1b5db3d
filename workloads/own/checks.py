"""Checks for tests of a user's own workload: variants compute the same, and levers work."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from workloads import Entry
from workloads.levers import Count, Lever, LeverError
from workloads.own.declaration import MARK, Declaration, OwnEntry
from workloads.own.loading import find
from workloads.training import Training, pick_device

VARIANTS: dict[str, tuple[str, ...]] = {
    "pipelined": ("on",),
    "num_workers": ("1",),
    "pin_memory": ("on",),
    "data": ("cached", "resident"),
    "channels_last": ("on",),
    "fused_optimizer": ("on",),
    "backward_thread": ("autograd",),
    "cuda_graph": ("on",),
}
"""Values that change how a step is computed, and not what. `compile` takes minutes: request it."""
COMPARED_STEPS = 4
"""Number of batches that data=cached replays."""
RTOL, ATOL = 1e-3, 1e-5
"""Tolerances well above the rounding of another order of additions."""


def check_variants(
    workload: Any,
    settings: Mapping[str, str] | None = None,
    *,
    device: str = "cpu",
    also: Mapping[str, tuple[str, ...]] | None = None,
    rtol: float = RTOL,
    atol: float = ATOL,
) -> dict[str, str]:
    """Train a few steps under each variant; raise AssertionError if the losses differ.

    `workload` is the decorated function or class, or a name as for `gpudash train`. `settings`
    apply to all variants; `also` adds variants. Returns the refused ones with their reasons.
    """
    entry, where = _entry(workload), pick_device(device)
    settings = {"num_workers": "0", **(settings or {})}
    expected = _losses(entry, settings, where)
    refused = {}
    for name, values in {**VARIANTS, **(also or {})}.items():
        for value in values:
            try:
                losses = _losses(entry, {**settings, name: value}, where)
            except LeverError as error:
                refused[f"{name}={value}"] = str(error)
                continue
            assert torch.allclose(losses, expected, rtol=rtol, atol=atol), (
                f"{entry.name}: {name}={value} gives losses {losses.tolist()}; "
                f"without it {expected.tolist()}"
            )
    return refused


def check_levers(
    workload: Any,
    settings: Mapping[str, str] | None = None,
    *,
    device: str = "cpu",
    leave_out: tuple[str, ...] = ("compile",),
) -> dict[str, str]:
    """Change every lever to each of its values during training, and take a step.

    A number is changed to its neighbours on both sides. Raises AssertionError if a loss is not
    finite. Returns the refused values with their reasons.
    """
    entry, where = _entry(workload), pick_device(device)
    settings = {"num_workers": "0", **(settings or {})}
    refused = {}
    with _training(entry, settings, where) as training:
        for lever in entry.levers:
            if lever.name in leave_out:
                continue
            start = training.settings[lever.name]
            for value in (*_others(lever, start), start):
                before = dict(training.settings)
                try:
                    wanted = training.resolve({lever.name: value})
                except LeverError as error:
                    refused[f"{lever.name}={value}"] = str(error)
                    continue
                try:
                    training.drain()
                    training.enter(wanted)
                except LeverError as error:
                    training.recover(before)
                    refused[f"{lever.name}={value}"] = str(error)
                    continue
                _step(training, f"{entry.name}: {lever.name}={value}")
    return refused


def _entry(workload: Any) -> Entry:
    declaration = getattr(workload, MARK, None)
    if isinstance(declaration, Declaration):
        return OwnEntry(workload.__name__, workload.__module__, declaration)
    return find(str(workload))


@contextmanager
def _training(
    entry: Entry, settings: Mapping[str, str], device: torch.device
) -> Iterator[Training]:
    training = Training(entry, settings, device)
    try:
        yield training
    finally:
        training.close()


def _losses(entry: Entry, settings: Mapping[str, str], device: torch.device) -> torch.Tensor:
    """Return the first losses, on the host."""
    with _training(entry, settings, device) as training:
        torch.manual_seed(0)  # as a loader draws a number, which shifts a model's dropout
        trained = [training.step() for _ in range(COMPARED_STEPS)] + [training.drain()]
        training.synchronize()
        return torch.stack([one.loss for one in trained if one is not None]).float().cpu()


def _step(training: Training, where: str) -> None:
    trained = training.step() or training.step()  # if pipelined, the first one only prepares
    assert trained is not None, f"{where}: no step was trained"
    assert trained.loss.isfinite(), f"{where}: the loss is {trained.loss.item()}"


def _others(lever: Lever, value: str) -> list[str]:
    if isinstance(lever, Count):
        near = (lever.step(value, -1), lever.step(value, 1))
        return [one for one in dict.fromkeys(near) if one != value]
    return [one for one in lever.values if one != value]
