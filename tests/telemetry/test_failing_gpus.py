"""GPUs that fail: the rest is read on, what went away is said, and it is taken up again."""

import os

import pytest

from gpudash.protocol.readings import GpuReading
from gpudash.telemetry import watched_gpu
from gpudash.telemetry.gpu import SLOW, open_gpu
from tests.telemetry.shim import FIRST, SECOND, SLICE, Driver
from tests.telemetry.stream import Stream
from tests.waiting import until

ME = os.getpid()
LOST, UNKNOWN, NO_PERMISSION, NOT_SUPPORTED, NOT_FOUND = 15, 999, 4, 3, 13
LARGEST = {4: 2**32 - 1, 8: 2**63}
"""As drivers say “unknown”: the largest number of the type, or half of it, by its bytes."""
ALL_SLOW = {"sm_active_pct", "energy_j", "pcie_rx_mib_s"}


@pytest.fixture(autouse=True)
def impatient(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_gpu, "STALE_S", 0.4)
    stream.sampler.watch(ME, FIRST)
    stream.sampler.start()


def reads(stream: Stream, uuid: str = FIRST, *, so: object = None) -> GpuReading:
    """Wait for a new reading of this GPU that has slow values too, and return it."""
    stream.samples.clear()
    until(lambda: any(one.uuid == uuid and {*one.values} >= ALL_SLOW for one in stream.gpu))
    return next(one for one in stream.gpu if one.uuid == uuid and {*one.values} >= ALL_SLOW)


def goes_on(stream: Stream) -> None:
    """Wait for further readings of the host."""
    read_so_far = len(stream.host)
    until(lambda: len(stream.host) > read_so_far + 3)


# ── the whole GPU ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("code", [LOST, UNKNOWN], ids=["lost", "an error not known here"])
def test_a_lost_gpu_is_said_and_taken_up_again(stream: Stream, driver: Driver, code: int):
    reads(stream)
    driver.says(f"gpu0.lost {code}")
    until(lambda: stream.sampler.missing.why not in (None, "the GPU is being opened"))
    stream.samples.clear()
    goes_on(stream)
    assert not stream.gpu, "a lost GPU has readings"
    driver.says("gpu0.lost 0")
    reads(stream)
    assert stream.sampler.missing.why is None


def test_a_gpu_that_comes_back_under_another_number_is_found_by_its_uuid(
    stream: Stream, driver: Driver
):
    assert reads(stream).index == 0
    driver.says(f"gpu0.lost {LOST}")
    until(lambda: stream.sampler.missing.why)
    driver.says(f"uuid.0 {SECOND}", f"uuid.1 {FIRST}")
    assert reads(stream).index == 1


def test_a_reloaded_driver_is_opened_anew_once_every_connection_to_the_old_one_is_closed(
    stream: Stream, driver: Driver
):
    stream.sampler.watch_others({SECOND})
    reads(stream)
    reads(stream, SECOND)
    driver.says("generation 2")
    until(lambda: stream.sampler.missing.why and stream.sampler.missing.others)
    reads(stream)
    reads(stream, SECOND)
    assert (stream.sampler.missing.why, stream.sampler.missing.others) == (None, {})


def test_a_driver_that_is_gone_for_a_while_is_found_again(stream: Stream, driver: Driver):
    reads(stream)
    driver.says("generation 2", "nvmlInitWithFlags.error 9")
    until(lambda: stream.sampler.missing.why == "the NVIDIA driver is not loaded")
    driver.says("nvmlInitWithFlags.error 0")
    reads(stream)


def test_a_gpu_of_another_rank_that_went_away_is_said_by_its_uuid(stream: Stream, driver: Driver):
    stream.sampler.watch_others({SECOND})
    reads(stream, SECOND)
    driver.says(f"gpu1.lost {LOST}")
    until(lambda: "lost" in stream.sampler.missing.others.get(SECOND, ""))
    reads(stream)
    assert stream.sampler.missing.why is None
    driver.says("gpu1.lost 0")
    reads(stream, SECOND)
    until(lambda: not stream.sampler.missing.others)


# ── calls that hang ─────────────────────────────────────────────────────────────────────


def test_a_gpu_whose_calls_hang_holds_up_no_other_reading(stream: Stream, driver: Driver):
    stream.sampler.watch_others({SECOND})
    reads(stream, SECOND)
    driver.says("gpu0.nvmlDeviceGetClockInfo.delay_ms 20000")
    until(lambda: stream.sampler.missing.why == "the NVIDIA driver does not answer")
    goes_on(stream)
    reads(stream, SECOND)
    driver.says("gpu0.nvmlDeviceGetClockInfo.delay_ms 0")
    reads(stream)
    assert stream.sampler.missing.why is None


def test_a_slow_call_that_hangs_leaves_the_fast_values(stream: Stream, driver: Driver):
    reads(stream)
    driver.says("gpu0.nvmlGpmMetricsGet.delay_ms 20000")
    until(lambda: stream.sampler.missing.values)
    assert stream.sampler.missing.values == {
        "energy and activity": "the NVIDIA driver does not answer"
    }
    stream.samples.clear()
    until(lambda: len(stream.gpu) > 3)
    assert not ALL_SLOW & {*stream.gpu[-1].values}
    driver.says("gpu0.nvmlGpmMetricsGet.delay_ms 0")
    reads(stream)
    until(lambda: not stream.sampler.missing.values)


# ── single values ───────────────────────────────────────────────────────────────────────


REFUSED, ALLOWED = f".error {NO_PERMISSION}", ".error 0"
ACTIVITY = "sm_active_pct", "SM, tensor and DRAM activity"


@pytest.mark.parametrize(
    ("question", "refused", "allowed", "metric", "reading"),
    [
        ("nvmlGpmQueryDeviceSupport", " 0", " 1", *ACTIVITY),  # as while MIG is switched
        *(
            ("nvmlGpmQueryDeviceSupport", f".error {code}", ALLOWED, *ACTIVITY)
            for code in (NO_PERMISSION, NOT_SUPPORTED, NOT_FOUND)
        ),
        ("nvmlGpmSampleGet", REFUSED, ALLOWED, *ACTIVITY),
        ("nvmlGpmMetricsGet", REFUSED, ALLOWED, *ACTIVITY),
        ("nvmlDeviceGetClockInfo", REFUSED, ALLOWED, "sm_clock_mhz", "clocks"),
        ("nvmlDeviceGetTotalEnergyConsumption", REFUSED, ALLOWED, "energy_j", "energy"),
    ],
)
def test_what_was_refused_comes_back_once_it_is_allowed(
    stream: Stream,
    driver: Driver,
    question: str,
    refused: str,
    allowed: str,
    metric: str,
    reading: str,
):
    driver.says(f"gpu1.{question}{refused}")
    stream.sampler.watch(ME, SECOND)
    until(lambda: reading in stream.sampler.missing.values)
    driver.says(f"gpu1.{question}{allowed}")
    until(lambda: metric in stream.gpu[-1].values and stream.gpu[-1].uuid == SECOND)
    until(lambda: not stream.sampler.missing.values)


LARGEST_OF_ALL = {
    ("gpu_util_pct", "utilisation"): f"nvmlDeviceGetUtilizationRates {LARGEST[4]}",
    ("sm_clock_mhz", "clocks"): f"nvmlDeviceGetClockInfo {LARGEST[4]}",
    ("mem_used_mib", "memory"): f"nvmlDeviceGetMemoryInfo_v2 {LARGEST[8]}",
    ("power_w", "power"): f"field.186 {LARGEST[4]}",
    ("temperature_c", "temperature"): "nvmlDeviceGetTemperatureV -2147483648",
    ("energy_j", "energy"): f"nvmlDeviceGetTotalEnergyConsumption {LARGEST[8]}",
    ACTIVITY: "gpm.2 1e30",
}
NONE = {
    ("power_w", "power"): "field.186 0",
    ("energy_j", "energy"): "nvmlDeviceGetTotalEnergyConsumption 0",
    ACTIVITY: "gpm.2 -5",
}


@pytest.mark.parametrize("says", [LARGEST_OF_ALL, NONE], ids=["the largest", "none"])
def test_a_value_that_no_gpu_can_have_is_not_passed_on_and_is_said(
    stream: Stream, driver: Driver, says: dict[tuple[str, str], str]
):
    reads(stream)
    driver.says(*says.values())
    until(lambda: {reading for _, reading in says} <= stream.sampler.missing.values.keys())
    for metric, reading in says:
        assert f"{metric} of" in stream.sampler.missing.values[reading]
    stream.samples.clear()
    until(lambda: len(stream.gpu) > 3)
    assert not {metric for metric, _ in says} & {*stream.gpu[-1].values}
    assert "throttle" in stream.gpu[-1].values


def test_a_value_that_fails_now_and_then_is_no_news(stream: Stream, driver: Driver):
    reads(stream)
    for _ in range(3):
        driver.says("nvmlDeviceGetClockInfo.error 10")
        until(lambda: "sm_clock_mhz" not in stream.gpu[-1].values)
        assert not stream.sampler.missing.values
        driver.says("nvmlDeviceGetClockInfo.error 0")
        until(lambda: "sm_clock_mhz" in stream.gpu[-1].values)


def test_where_the_driver_has_next_to_nothing_the_rest_is_absent_with_reasons(driver: Driver):
    """As under WSL, or in a virtual GPU: no fields, no counters, no activity, no processes."""
    lacking = ("UtilizationRates", "FieldValues", "TotalEnergyConsumption", "PowerUsage")
    for function in (*lacking, "EnforcedPowerLimit"):
        driver.says(f"nvmlDeviceGet{function}.error {NOT_SUPPORTED}")
    driver.says(f"nvmlGpmQueryDeviceSupport.error {NOT_FOUND}")
    gpu = open_gpu(FIRST)
    values = gpu.fast().values | gpu.slow().values
    gpu.close()
    assert {*values} == {
        *("mem_used_mib", "mem_free_mib", "mem_total_mib"),
        *("temperature_c", "sm_clock_mhz", "throttle"),
    }
    assert {*gpu.unread} == {"utilisation", "power", *SLOW} - {"other processes"}


def test_nothing_is_asked_of_processes_whose_numbers_differ_in_a_container(
    stream: Stream, driver: Driver
):
    driver.says("process.0 4194305 50")
    reads(stream)
    assert "nvmlDeviceGetProcessUtilization" not in driver.asked_of(0)


# ── which GPUs ──────────────────────────────────────────────────────────────────────────


def test_of_eight_gpus_only_the_two_trained_on_are_asked(stream: Stream, driver: Driver):
    uuids = [f"GPU-{number}000" for number in range(8)]
    driver.says("gpus 8", *(f"uuid.{number} {uuid}" for number, uuid in enumerate(uuids)))
    stream.sampler.watch(ME, uuids[5])
    stream.sampler.watch_others({uuids[2]})
    reads(stream, uuids[5])
    reads(stream, uuids[2])
    assert [number for number in range(1, 8) if driver.asked_of(number)] == [2, 5]


@pytest.mark.parametrize(("uuid", "index"), [(SECOND, 1), (SLICE, 1)])
def test_a_training_that_sees_one_device_of_several_has_that_one_read(
    stream: Stream, driver: Driver, uuid: str, index: int
):
    """The training names its device by UUID, whichever form CUDA_VISIBLE_DEVICES has."""
    driver.says("mig.nvmlDeviceGetTotalEnergyConsumption 5000")
    stream.sampler.watch(ME, uuid)
    assert reads(stream, uuid).index == index
