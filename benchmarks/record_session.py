"""Record what the driver answers on a real GPU, in the language of `tests/telemetry/nvml_shim.c`.

    python -m benchmarks.record_session FILE --seconds 20 -- COMMAND THAT TRAINS

Asks five times a second, once a second what takes milliseconds, from 3 s before the command starts
until 3 s after its end. A line `at 1.200` begins a moment. Below it is each answer that differs
from the one before, in NVML's unit: a value, or the `.error` that was returned instead.
"""

import argparse
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml

from gpudash.telemetry.gpm import METRICS as GPM
from gpudash.telemetry.gpu import CORE_SENSOR, PCIE_RX_BYTES, PCIE_TX_BYTES, POWER_INSTANT, SM_CLOCK
from gpudash.telemetry.nvml import FIELD_MEMBERS

FAST_S, SLOW_EVERY, IDLE_S = 0.2, 5, 3.0
INTERRUPT = 2


def answered(key: str, ask: Callable[[], dict[str, object]]) -> dict[str, object]:
    """Return what is answered by key of the stand-in, or the error of `key`."""
    try:
        return ask() | {f"{key}.error": 0}
    except pynvml.NVMLError as error:
        return {f"{key}.error": error.value}


def plain(function: str, bound: str, gpu: object, *more: object) -> dict[str, object]:
    """Return the answer of a function that has a single number."""
    return answered(function, lambda: {function: getattr(pynvml, bound)(gpu, *more)})


def utilisation(gpu: object) -> dict[str, object]:
    """Return both rates in percent."""
    key = "nvmlDeviceGetUtilizationRates"

    def ask() -> dict[str, object]:
        rates = pynvml.nvmlDeviceGetUtilizationRates(gpu)
        return {key: rates.gpu, f"{key}.memory": rates.memory}

    return answered(key, ask)


def memory(gpu: object) -> dict[str, object]:
    """Return bytes of memory."""
    key = "nvmlDeviceGetMemoryInfo_v2"

    def ask() -> dict[str, object]:
        found = pynvml.nvmlDeviceGetMemoryInfo(gpu, pynvml.nvmlMemory_v2)
        return {key: found.used, f"{key}.total": found.total, f"{key}.reserved": found.reserved}

    return answered(key, ask)


def field(gpu: object, number: int) -> dict[str, object]:
    """Return a field's value with its type, or its own code."""
    found = pynvml.nvmlDeviceGetFieldValues(gpu, [number])[0]
    key = f"field.{number}"
    if found.nvmlReturn:
        return {f"{key}.error": found.nvmlReturn}
    value = getattr(found.value, FIELD_MEMBERS[found.valueType])
    return {key: value, f"{key}.type": found.valueType, f"{key}.error": 0}


class Activity:
    """GPM's metrics since the moment before."""

    def __init__(self, gpu: object) -> None:
        self._gpu, self._before = gpu, self._sample(gpu)

    @staticmethod
    def _sample(gpu: object) -> Any:
        sample = pynvml.nvmlGpmSampleAlloc()
        pynvml.nvmlGpmSampleGet(gpu, sample)
        return sample

    def read(self) -> dict[str, object]:
        """Return each metric, or its own code."""
        question = pynvml.c_nvmlGpmMetricsGet_t()
        question.version, question.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(GPM)
        before, self._before = self._before, self._sample(self._gpu)
        question.sample1, question.sample2 = before, self._before
        for slot, number in zip(question.metrics, GPM.values(), strict=False):
            slot.metricId = number
        answer = pynvml.nvmlGpmMetricsGet(question)
        pynvml.nvmlGpmSampleFree(before)
        found: dict[str, object] = {}
        for slot, number in zip(answer.metrics, GPM.values(), strict=False):
            found |= {f"gpm.{number}": slot.value, f"gpm.{number}.error": slot.nvmlReturn}
        return found


def fast(gpu: object) -> dict[str, object]:
    """Return what takes microseconds."""
    return (
        utilisation(gpu)
        | memory(gpu)
        | field(gpu, POWER_INSTANT)
        | plain("nvmlDeviceGetPowerUsage", "nvmlDeviceGetPowerUsage", gpu)
        | plain("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperatureV", gpu, CORE_SENSOR)
        | plain("nvmlDeviceGetClockInfo", "nvmlDeviceGetClockInfo", gpu, SM_CLOCK)
        | plain(
            "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksEventReasons", gpu
        )
    )


def slow(gpu: object) -> dict[str, object]:
    """Return what takes milliseconds, but for activity."""
    energy = "nvmlDeviceGetTotalEnergyConsumption"
    limit = "nvmlDeviceGetEnforcedPowerLimit"
    return (
        plain(energy, energy, gpu)
        | plain(limit, limit, gpu)
        | field(gpu, PCIE_TX_BYTES)
        | field(gpu, PCIE_RX_BYTES)
    )


def moments(gpu: object, over: Callable[[], bool]) -> Iterator[str]:
    """Yield the lines of each moment until it is over."""
    known: dict[str, object] = {}
    activity = answered("nvmlGpmQueryDeviceSupport", lambda: {"reader": Activity(gpu)})
    reader = activity.pop("reader", None)
    yield from (f"{key} {value}" for key, value in activity.items() if value)
    began_s, moment = time.monotonic(), 0
    while not over():
        found = fast(gpu)
        if moment % SLOW_EVERY == SLOW_EVERY - 1:
            found |= slow(gpu) | (reader.read() if isinstance(reader, Activity) else {})
        yield f"at {time.monotonic() - began_s:.3f}"
        for key, value in found.items():
            if known.get(key, 0 if key.endswith(".error") else None) != value:
                yield f"{key} {value:.4f}" if isinstance(value, float) else f"{key} {value}"
        known |= found
        moment += 1
        time.sleep(FAST_S)


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--gpu", type=int, default=0, help="its number in the driver's order")
    parser.add_argument("--seconds", type=float, default=20.0, help="of training")
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(asked.gpu)
    began_s, training = time.monotonic(), None

    def over() -> bool:
        nonlocal training
        lasted_s = time.monotonic() - began_s - IDLE_S
        if training is None and lasted_s > 0:
            training = subprocess.Popen(asked.command, env=os.environ, stdout=-3)
        if training is not None and lasted_s > asked.seconds and training.poll() is None:
            training.send_signal(INTERRUPT)
        return bool(lasted_s > asked.seconds + IDLE_S)

    head = (f"# {pynvml.nvmlDeviceGetName(gpu)}, driver {pynvml.nvmlSystemGetDriverVersion()}",)
    with asked.file.open("w") as file:
        file.writelines(f"{line}\n" for line in (*head, *moments(gpu, over)))
    if training is not None:
        training.wait(30)


if __name__ == "__main__":
    main()
