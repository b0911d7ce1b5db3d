"""The timed loop of `python -m workloads`; imports torch, so it is imported last."""

import time
from collections.abc import Mapping

import torch

from workloads import Entry
from workloads.training import Training, pick_device

WARMUP_STEPS = 10
"""Steps before the clock starts, as in the sources."""


def run(entry: Entry, settings: Mapping[str, str], device: str, steps: int) -> dict[str, object]:
    """Time so many steps, and return the result. Raises LeverError for invalid settings."""
    training = Training(entry, settings, pick_device(device))
    try:
        seconds, loss = timed(training, steps)
    finally:
        training.close()
    steps_per_s = steps / seconds
    return {
        "workload": entry.name,
        "settings": training.settings,
        "device": str(training.device),
        "device_name": device_name(training.device),
        "torch": torch.__version__,
        "steps": steps,
        "seconds": seconds,
        "steps_per_s": steps_per_s,
        "samples_per_s": steps_per_s * int(training.settings["batch_size"]),
        "loss": loss,
    }


def timed(training: Training, steps: int) -> tuple[float, float]:
    """Return the wall seconds of `steps` steps, 1 or more, after the warm-up; the last loss."""
    while training.trained_steps < WARMUP_STEPS:
        training.step()
    training.synchronize()  # sync: the clock starts when the device has finished
    began = time.perf_counter()
    for _ in range(steps):
        trained = training.step()
    training.synchronize()  # sync: and stops when it has finished
    seconds = time.perf_counter() - began
    training.drain()
    assert trained is not None  # after the warm-up each call trains
    return seconds, trained.loss.item()  # sync: the clock has stopped


def device_name(device: torch.device) -> str:
    """Return the device's name; `cpu` for a CPU, which has none in torch."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
