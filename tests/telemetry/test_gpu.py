"""What one GPU reports: units, fallbacks, and each value missing on its own."""

import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from gpudash.metrics import METRICS
from gpudash.telemetry import nvml
from gpudash.telemetry.gpm import SHORTEST_S
from gpudash.telemetry.gpu import Gpu, open_gpu
from gpudash.telemetry.nvml import GpuUnavailable
from tests.telemetry.shim import FIRST, SLICE, Driver, build

NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, TIMEOUT, LOST = 3, 4, 13, 10, 15

FAST = {
    "gpu_util_pct": 87.0,
    "mem_util_pct": 23.0,
    "mem_used_mib": 1000.0,
    "mem_total_mib": 81920.0,
    "mem_free_mib": 80420.0,
    "power_w": 251.5,
    "temperature_c": 61.0,
    "sm_clock_mhz": 1980.0,
    "throttle": "none",
}
SLOW = {
    "sm_active_pct": 96.5,
    "sm_occupancy_pct": 12.25,
    "tensor_active_pct": 40.0,
    "dram_active_pct": 3.0,
    "pcie_tx_mib_s": 120.0,
    "pcie_rx_mib_s": 1500.0,
    "nvlink_rx_mib_s": 21000.0,
    "nvlink_tx_mib_s": 20500.0,
    "energy_j": 12345.678,
    "power_limit_w": 700.0,
}
GPM_IDS = {
    "sm_active_pct": 2,
    "sm_occupancy_pct": 3,
    "tensor_active_pct": 5,
    "dram_active_pct": 10,
    "pcie_tx_mib_s": 20,
    "pcie_rx_mib_s": 21,
    "nvlink_rx_mib_s": 60,
    "nvlink_tx_mib_s": 61,
}


@pytest.fixture
def gpu(driver: Driver) -> Iterator[Gpu]:
    driver.says(*(f"gpm.{GPM_IDS[name]} {SLOW[name]}" for name in GPM_IDS))
    opened = open_gpu(FIRST)
    yield opened
    opened.close()


def fast(gpu: Gpu) -> dict[str, object]:
    return dict(gpu.fast().values)


def slow(gpu: Gpu) -> dict[str, object]:
    """The second of two slow readings, far enough apart for a difference."""
    gpu.slow()
    time.sleep(SHORTEST_S)
    return dict(gpu.slow().values)


# ── units ───────────────────────────────────────────────────────────────────────────────


def test_a_fast_reading_is_in_the_units_of_its_names(gpu: Gpu):
    assert fast(gpu) == FAST


def test_a_slow_reading_is_in_the_units_of_its_names(gpu: Gpu):
    assert slow(gpu) == SLOW


def test_every_value_read_is_a_known_metric():
    assert {*FAST, *SLOW} <= {*METRICS}


def test_activity_has_the_start_of_its_averaging_window(gpu: Gpu):
    first = gpu.slow()
    assert first.activity_since_s is None
    time.sleep(SHORTEST_S)
    second = gpu.slow()
    assert second.activity_since_s == first.at_s
    time.sleep(SHORTEST_S)
    assert gpu.slow().activity_since_s == second.at_s


@pytest.mark.parametrize("code", [NO_PERMISSION, TIMEOUT])
def test_activity_that_failed_at_first_is_of_the_time_since_it_was_read(
    gpu: Gpu, driver: Driver, monkeypatch: pytest.MonkeyPatch, code: int
):
    monkeypatch.setattr(nvml, "ASK_AGAIN_S", 0.0)
    driver.says(f"nvmlGpmSampleGet.error {code}", "field.197.error 3")
    gpu.slow()
    driver.says("nvmlGpmSampleGet.error 0")
    time.sleep(SHORTEST_S)
    first = gpu.slow()
    assert first.activity_since_s is None
    time.sleep(SHORTEST_S)
    assert gpu.slow().activity_since_s == first.at_s


def test_energy_has_the_moment_its_counter_was_read(gpu: Gpu, driver: Driver):
    driver.says("nvmlGpmSampleGet.delay_ms 50")  # called before the energy counter
    reading = gpu.slow()
    assert reading.energy_at_s
    assert reading.energy_at_s >= reading.at_s + 0.05
    driver.says("nvmlDeviceGetTotalEnergyConsumption.error 10")
    assert gpu.slow().energy_at_s is None


def test_a_sample_names_the_gpu_and_the_moment(gpu: Gpu):
    before_s = time.monotonic()
    sample = gpu.fast()
    assert (sample.index, sample.uuid, sample.name) == (0, FIRST, "Hopper One")
    assert before_s <= sample.at_s <= time.monotonic()


@pytest.mark.parametrize(
    ("bits", "throttle"),
    [
        (0x0, "none"),
        (0x1, "none"),
        (0x2, "none"),
        (0x4, "sw_power_cap"),
        (0x5, "sw_power_cap"),
        (0x48, "hw_slowdown+hw_thermal_slowdown"),
    ],
)
def test_idling_and_chosen_clocks_are_no_throttling(
    gpu: Gpu, driver: Driver, bits: int, throttle: str
):
    driver.says(f"nvmlDeviceGetCurrentClocksEventReasons {bits}")
    assert gpu.fast().values.get("throttle") == throttle


def test_the_blocking_pcie_call_is_never_made(gpu: Gpu, driver: Driver):
    driver.says("gpm.20.error 3", "gpm.21.error 3", "field.197.error 3", "field.198.error 3")
    fast(gpu)
    slow(gpu)
    assert driver.asked("nvmlDeviceGetPcieThroughput") == 0


# ── each value may be missing alone ─────────────────────────────────────────────────────


@pytest.mark.parametrize("code", [NOT_SUPPORTED, FUNCTION_NOT_FOUND, NO_PERMISSION, TIMEOUT])
@pytest.mark.parametrize(
    ("functions", "missing"),
    [
        (["nvmlDeviceGetUtilizationRates"], {"gpu_util_pct", "mem_util_pct"}),
        (
            ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"],
            {"mem_used_mib", "mem_total_mib", "mem_free_mib"},
        ),
        (["field.186", "nvmlDeviceGetPowerUsage"], {"power_w"}),
        (["nvmlDeviceGetFieldValues", "nvmlDeviceGetPowerUsage"], {"power_w"}),
        (["nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"], {"temperature_c"}),
        (["nvmlDeviceGetClockInfo"], {"sm_clock_mhz"}),
        (
            [
                "nvmlDeviceGetCurrentClocksEventReasons",
                "nvmlDeviceGetCurrentClocksThrottleReasons",
            ],
            {"throttle"},
        ),
    ],
)
def test_a_failing_fast_value_leaves_the_others(
    gpu: Gpu, driver: Driver, functions: list[str], missing: set[str], code: int
):
    driver.says(*(f"{function}.error {code}" for function in functions))
    assert fast(gpu) == {name: FAST[name] for name in FAST if name not in missing}


@pytest.mark.parametrize("name", GPM_IDS)
@pytest.mark.parametrize("says", ["gpm.{}.error 3", "gpm.{} nan"])
def test_a_failing_gpm_metric_leaves_the_others(gpu: Gpu, driver: Driver, name: str, says: str):
    driver.says(says.format(GPM_IDS[name]), "field.197.error 3")
    assert slow(gpu) == {other: SLOW[other] for other in SLOW if other != name}


@pytest.mark.parametrize(
    "says",
    [
        "nvmlGpmQueryDeviceSupport 0",
        "nvmlGpmQueryDeviceSupport.error 3",
        "nvmlGpmSampleGet.error 4",
        "nvmlGpmMetricsGet.error 4",
    ],
)
def test_without_gpm_energy_and_counted_pcie_bytes_remain(gpu: Gpu, driver: Driver, says: str):
    driver.says(says)
    reading = slow(gpu)
    assert reading.pop("pcie_tx_mib_s") == 0
    assert reading.pop("pcie_rx_mib_s") == 0
    assert reading == {name: SLOW[name] for name in ("energy_j", "power_limit_w")}


def test_counted_pcie_bytes_become_mib_per_second_of_the_time_between(gpu: Gpu, driver: Driver):
    mib = 1024 * 1024
    driver.says("nvmlGpmQueryDeviceSupport 0")
    gpu.slow()
    driver.says(f"field.197 {10 * mib}", f"field.198 {30 * mib}")
    reading = gpu.slow()
    rx_mib_s, tx_mib_s = reading.number("pcie_rx_mib_s"), reading.number("pcie_tx_mib_s")
    assert rx_mib_s
    assert tx_mib_s
    assert rx_mib_s / tx_mib_s == pytest.approx(3)


def test_a_byte_counter_that_wrapped_gives_no_rate(gpu: Gpu, driver: Driver):
    driver.says("nvmlGpmQueryDeviceSupport 0", "field.197 5000", "field.198 5000")
    gpu.slow()
    driver.says("field.197 100")
    assert gpu.slow().values.get("pcie_tx_mib_s") is None


def test_two_samples_closer_than_the_driver_refreshes_give_no_activity(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("gpudash.telemetry.gpu.time.monotonic", time.monotonic().__float__)
    gpu.slow()
    assert gpu.slow().values.get("sm_active_pct") is None


# ── fallbacks ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("without", "field", "value"),
    [
        ("nvmlDeviceGetMemoryInfo_v2", "mem_used_mib", 1500.0),
        ("nvmlDeviceGetFieldValues", "power_w", 240.0),
        ("nvmlDeviceGetTemperatureV", "temperature_c", 59.0),
        ("nvmlDeviceGetCurrentClocksEventReasons", "throttle", "none"),
    ],
)
def test_an_older_driver_is_read_by_its_older_function(
    driver: Driver,
    load: Callable[[Path], None],
    tmp_path: Path,
    without: str,
    field: str,
    value: object,
):
    load(build(tmp_path, without=(without,)))
    gpu = open_gpu(FIRST)
    assert fast(gpu) == FAST | {field: value}
    gpu.close()


def test_a_field_value_is_read_by_its_type(gpu: Gpu, driver: Driver):
    driver.says("field.186.type 0", "field.186 99500.0")
    assert gpu.fast().values.get("power_w") == 99.5


def test_a_field_value_of_an_unknown_type_is_not_guessed(gpu: Gpu, driver: Driver):
    driver.says("field.186.type 77", "nvmlDeviceGetPowerUsage.error 3")
    assert gpu.fast().values.get("power_w") is None


# ── a refusal is not asked again at once ────────────────────────────────────────────────


REFUSALS = [f".error {code}" for code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND, NO_PERMISSION)]
TOO_OLD = "nvmlGpmQueryDeviceSupport", " 0"


@pytest.mark.parametrize(
    ("question", "says"),
    [
        *product(
            [
                "nvmlDeviceGetUtilizationRates",
                "nvmlDeviceGetMemoryInfo_v2",
                "nvmlDeviceGetFieldValues",
                "field.186",
                "nvmlDeviceGetTotalEnergyConsumption",
                "nvmlGpmQueryDeviceSupport",
                "nvmlGpmSampleGet",
            ],
            REFUSALS,
        ),
        TOO_OLD,
    ],
)
def test_a_refusal_is_remembered(gpu: Gpu, driver: Driver, question: str, says: str):
    driver.says(f"{question}{says}", "gpm.20.error 3")
    for _ in range(3):
        gpu.fast()
        gpu.slow()
    assert driver.asked(question) == 1
    assert question != TOO_OLD[0] or not driver.asked("nvmlGpmSampleAlloc")


# ── the end of a GPU ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("function", ["nvmlDeviceGetClockInfo", "field.186"])
def test_a_lost_gpu_ends_the_reading_with_a_reason(gpu: Gpu, driver: Driver, function: str):
    assert fast(gpu) == FAST
    driver.says(f"{function}.error {LOST}")
    with pytest.raises(GpuUnavailable, match="the GPU was lost"):
        gpu.fast()


def test_closing_a_lost_gpu_does_not_raise(driver: Driver):
    gpu = open_gpu(FIRST)
    slow(gpu)
    driver.says(f"nvmlGpmSampleFree.error {LOST}", f"nvmlShutdown.error {LOST}")
    gpu.close()


# ── which GPU ───────────────────────────────────────────────────────────────────────────


def test_a_mig_slice_has_its_own_activity_and_memory_and_its_boards_clock(driver: Driver):
    driver.says("mig.nvmlDeviceGetUtilizationRates.error 3", "gpu1.nvmlDeviceGetClockInfo 200")
    driver.says("mig.nvmlDeviceGetMemoryInfo_v2 1048576", "mig.gpm.2 55", "gpu1.gpm.2 99")
    gpu = open_gpu(SLICE)
    sample, activity = gpu.fast(), slow(gpu)
    gpu.close()
    assert (sample.uuid, sample.index, sample.values.get("gpu_util_pct")) == (SLICE, 1, None)
    assert (sample.values["mem_used_mib"], sample.values["sm_clock_mhz"]) == (1, 200)
    assert activity["sm_active_pct"] == 55


def test_the_boards_activity_is_never_shown_as_a_slices(driver: Driver):
    driver.says("nvmlDeviceGetGpuInstanceId.error 3", "mig.nvmlGpmQueryDeviceSupport 0")
    gpu = open_gpu(SLICE)
    assert "sm_active_pct" not in slow(gpu)
    gpu.close()
