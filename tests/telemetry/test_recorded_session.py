"""A session that `benchmarks/record_session.py` has recorded on an H100, read by the stand-in."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudash.telemetry.gpm import METRICS as GPM
from gpudash.telemetry.gpm import SHORTEST_S
from gpudash.telemetry.gpu import Gpu, Values, open_gpu
from tests.telemetry.shim import FIRST, Driver

SESSION = Path(__file__).with_name("h100_session.txt").read_text().splitlines()
MIB = 1 << 20


def moments() -> list[list[str]]:
    """The answers that changed at each moment, in the stand-in's language."""
    found: list[list[str]] = []
    for line in SESSION[1:]:
        if line.startswith("at "):
            found.append([])
        else:
            found[-1].append(line)
    return found


def as_answered(answers: dict[str, float]) -> Values:
    """What a reading has to say of these answers of the driver, which are in its own units."""
    return {
        "gpu_util_pct": answers["nvmlDeviceGetUtilizationRates"],
        "mem_util_pct": answers["nvmlDeviceGetUtilizationRates.memory"],
        "mem_used_mib": answers["nvmlDeviceGetMemoryInfo_v2"] / MIB,
        "mem_total_mib": answers["nvmlDeviceGetMemoryInfo_v2.total"] / MIB,
        "power_w": answers["field.186"] / 1000,
        "temperature_c": answers["nvmlDeviceGetTemperatureV"],
        "sm_clock_mhz": answers["nvmlDeviceGetClockInfo"],
        "throttle": "none",  # of its reasons it has idle alone
    }


@pytest.fixture
def gpu(driver: Driver) -> Iterator[Gpu]:
    driver.says("quiet 1")
    opened = open_gpu(FIRST)
    yield opened
    opened.close()


def test_each_moment_is_read_as_the_driver_answered(gpu: Gpu, driver: Driver):
    answers: dict[str, float] = {}
    for lines in moments():
        driver.says(*lines)
        answers |= {key: float(value) for key, _, value in (one.partition(" ") for one in lines)}
        read = gpu.fast()
        expected = as_answered(answers)
        assert {name: read.values[name] for name in expected} == pytest.approx(expected)
        assert not gpu.unread
    assert len(moments()) > 60


def test_activity_and_energy_are_those_of_the_last_moment(gpu: Gpu, driver: Driver):
    driver.says(*(line for lines in moments() for line in lines))
    answers = {key: value for key, _, value in (one.partition(" ") for one in SESSION[1:])}
    gpu.slow()
    time.sleep(1.5 * SHORTEST_S)
    values = gpu.slow().values
    assert values["energy_j"] == int(answers["nvmlDeviceGetTotalEnergyConsumption"]) / 1000
    assert values["power_limit_w"] == int(answers["nvmlDeviceGetEnforcedPowerLimit"]) / 1000
    for metric, number in GPM.items():
        assert values[metric] == float(answers[f"gpm.{number}"])
