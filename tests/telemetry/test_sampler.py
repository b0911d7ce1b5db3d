"""The sampler's stream: complete, steady, with reasons for what is missing, and stoppable."""

import os
import subprocess
import threading
import time
from collections.abc import Iterable

import pytest

from gpudash.protocol.readings import OtherJobs
from gpudash.telemetry import watched_gpu
from gpudash.telemetry.gpu import Gpu
from gpudash.telemetry.nvml import GpuUnavailable
from tests.telemetry.shim import FIRST, SECOND, Driver
from tests.telemetry.stream import FAST_S, SLOW_S, Found, Stream
from tests.waiting import until

ME, OTHER = os.getpid(), os.getppid()


# ── what comes out ──────────────────────────────────────────────────────────────────────


def test_one_stream_carries_fast_and_slow_values_together(stream: Stream):
    stream.follow(FIRST)
    until(lambda: any(each.number("sm_active_pct") is not None for each in stream.gpu))
    newest = next(each for each in stream.gpu if each.number("sm_active_pct") is not None)
    assert (newest.uuid, newest.number("power_w"), newest.number("energy_j")) == (
        FIRST,
        251.5,
        12345.678,
    )
    assert newest.activity_since_s <= newest.at_s - SLOW_S / 2
    assert stream.sampler.missing.why is None
    assert not stream.listings  # they are for a training on the CPU


def test_other_jobs_are_read_beside_the_training_and_its_ranks(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
):
    asked: list[tuple[int, ...]] = []

    def read(pids: Iterable[int], _core_wait_pct: float | None) -> OtherJobs:
        asked.append(tuple(pids))
        return OtherJobs(at_s=0.0, used_cores=1.2, cores=2)

    monkeypatch.setattr(stream.sampler._other_jobs, "read", read)
    stream.sampler.watch_processes({OTHER})
    stream.follow(None)
    until(lambda: any(isinstance(each, OtherJobs) for each in list(stream.samples)))
    assert asked[0] == (ME, OTHER)


def test_samples_are_stamped_in_order_on_the_monotonic_clock(stream: Stream):
    before_s = time.monotonic()
    stream.follow(FIRST)
    until(lambda: len(stream.gpu) >= 10)
    stream.sampler.stop()
    stamps = [each.at_s for each in stream.gpu]
    assert stamps == sorted(set(stamps))
    assert before_s <= stamps[0] <= stamps[-1] <= time.monotonic()


def test_a_slow_value_is_dropped_when_it_has_grown_old(
    stream: Stream, driver: Driver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(watched_gpu, "STALE_S", 3 * FAST_S)
    stream.follow(FIRST)
    until(lambda: any(each.number("energy_j") is not None for each in stream.gpu))
    driver.says("nvmlDeviceGetTotalEnergyConsumption.delay_ms 400")
    until(lambda: stream.gpu[-1].number("energy_j") is None)
    assert stream.gpu[-1].number("power_w") == 251.5


def test_energy_carries_the_moment_of_its_reading_not_of_the_sample(stream: Stream):
    stream.follow(FIRST)
    until(lambda: len({each.energy_at_s for each in stream.gpu if each.number("energy_j")}) >= 3)
    metered = [each for each in stream.gpu if each.number("energy_j") is not None]
    assert all(each.energy_at_s and each.energy_at_s <= each.at_s for each in metered)
    assert len({each.energy_at_s for each in metered}) < len(metered)


# ── which GPU, and why none ─────────────────────────────────────────────────────────────


def test_before_anything_is_watched_nothing_is_read(stream: Stream, driver: Driver):
    stream.sampler.start()
    assert stream.sampler.missing.why == "waiting for the worker"
    time.sleep(3 * FAST_S)
    assert not stream.samples
    assert not driver.asked("nvmlInitWithFlags")


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (GpuUnavailable("the NVIDIA driver is not loaded"), ": the NVIDIA driver is not loaded"),
        (RuntimeError("odd"), ": reading the GPU failed: RuntimeError: odd"),
        ((), ": no NVIDIA GPU is present"),
        (("NVIDIA H200",), ", though NVML lists NVIDIA H200"),
        (("NVIDIA H200", "NVIDIA T4", "NVIDIA T4"), ", though NVML lists NVIDIA H200 and 2 more"),
    ],
)
def test_training_on_the_cpu_reads_no_gpu_and_says_once_whether_there_is_one(
    stream: Stream, driver: Driver, found: Found, reason: str
):
    stream.listed = found
    stream.sampler.watch(ME, None)
    assert stream.sampler.missing.why == "training on the CPU"
    stream.sampler.start()
    until(lambda: stream.sampler.missing.why == f"training on the CPU{reason}")
    ends_s = time.monotonic() + 3 * SLOW_S
    until(lambda: time.monotonic() > ends_s and len(stream.host) >= 5)
    assert stream.listings == 1
    assert not stream.gpu
    assert not driver.asked("nvmlInitWithFlags")


@pytest.mark.parametrize("reader", ["fast", "slow"])
def test_an_exception_in_a_reader_becomes_a_reason_and_ends_no_thread(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, reader: str
):
    def broken(_: Gpu) -> None:
        raise RuntimeError("out of order")

    works = getattr(Gpu, reader)
    monkeypatch.setattr(Gpu, reader, broken)
    stream.follow(FIRST)
    until(lambda: len(stream.host) > 2)
    if reader == "fast":
        until(lambda: "out of order" in (stream.sampler.missing.why or ""))
    monkeypatch.setattr(Gpu, reader, works)
    until(lambda: any("energy_j" in one.values for one in stream.gpu))


def test_an_unreadable_host_leaves_the_gpu(stream: Stream, monkeypatch: pytest.MonkeyPatch):
    def broken(_: str) -> bytes:
        raise OSError("too many open files")

    monkeypatch.setattr("gpudash.telemetry.procfs.text", broken)
    stream.follow(FIRST)
    until(lambda: len(stream.gpu) >= 3)
    assert stream.host[-1].number("worker_rss_mib") is None


def test_watching_again_follows_the_new_worker_and_its_gpu(stream: Stream, driver: Driver):
    stream.follow(FIRST)
    until(lambda: stream.gpu)
    stream.sampler.watch(os.getppid(), SECOND)
    until(lambda: stream.gpu[-1].uuid == SECOND)
    switched = next(i for i, each in enumerate(stream.gpu) if each.uuid == SECOND)
    assert all(each.uuid == SECOND for each in stream.gpu[switched:])
    until(lambda: driver.asked("nvmlShutdown") == 2)
    stream.sampler.watch(ME, None)
    until(lambda: driver.asked("nvmlShutdown") == 4)
    until(lambda: stream.sampler.missing.why == "training on the CPU: no NVIDIA GPU is present")


# ── the end ─────────────────────────────────────────────────────────────────────────────


def test_after_a_stop_nothing_is_emitted_and_everything_is_freed(stream: Stream, driver: Driver):
    threads = {*threading.enumerate()}
    stream.follow(FIRST)
    until(lambda: any(each.number("sm_active_pct") is not None for each in stream.gpu))
    stream.sampler.stop()
    stream.sampler.stop()
    emitted = len(stream.samples)
    time.sleep(3 * FAST_S)
    assert len(stream.samples) == emitted
    assert {*threading.enumerate()} <= threads  # one of a test before may end meanwhile
    assert driver.asked("nvmlShutdown") == driver.asked("nvmlInitWithFlags") == 2
    assert driver.asked("nvmlGpmSampleFree") == driver.asked("nvmlGpmSampleAlloc")


def test_a_stop_without_a_start_does_nothing(stream: Stream):
    stream.sampler.stop()


@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetClockInfo"]
)
def test_a_driver_that_hangs_does_not_hang_the_stop(stream: Stream, driver: Driver, function: str):
    driver.says(f"{function}.delay_ms 2000")
    stream.follow(FIRST)
    until(lambda: driver.asked(function))
    stream.sampler.stop(timeout_s=0.2)
    assert driver.asked("nvmlShutdown") < 2, "the stop waited for the call"
    emitted = len(stream.samples)
    until(lambda: driver.asked("nvmlShutdown") == 2)  # the thread ends once the call returns
    assert len(stream.samples) == emitted


# ── the GPUs of other ranks ─────────────────────────────────────────────────────────────


def test_another_gpu_may_come_and_go_while_the_first_is_read(stream: Stream, driver: Driver):
    stream.follow(FIRST)
    until(lambda: stream.gpu)
    stream.sampler.watch_others({SECOND})
    until(lambda: stream.gpu[-1].uuid == SECOND)
    stream.sampler.watch_others(())
    until(lambda: driver.asked("nvmlShutdown"))
    stream.samples.clear()
    until(lambda: len(stream.gpu) > 3)
    assert {one.uuid for one in stream.gpu[1:]} == {FIRST}


def test_a_gpu_removed_and_added_again_is_read_over_no_more_connections(
    stream: Stream, driver: Driver
):
    stream.sampler.start()
    for gpus in ({SECOND}, (), {SECOND}):
        stream.sampler.watch_others(gpus)
    until(lambda: stream.gpu)
    until(lambda: driver.asked("nvmlInitWithFlags") - driver.asked("nvmlShutdown") == 2)


def test_a_node_without_rank_0_has_its_gpus_read(stream: Stream):
    stream.sampler.watch_others({FIRST, SECOND})
    stream.sampler.start()
    until(lambda: {one.uuid for one in stream.gpu} == {FIRST, SECOND})


def test_a_gpu_of_another_machine_is_left_out_silently(stream: Stream):
    stream.sampler.watch_others({"GPU-elsewhere"})
    stream.follow(FIRST)
    until(lambda: len(stream.gpu) > 3)
    assert {one.uuid for one in stream.gpu} == {FIRST}
    assert stream.sampler.missing.why is None


# ── the processes of other ranks ────────────────────────────────────────────────────────


def test_the_processes_of_every_rank_are_read_and_gpudashs_own_once(stream: Stream):
    stream.sampler.watch_processes({OTHER})
    stream.follow(None)
    until(lambda: {one.pid for one in stream.host if "cpu_pct" in one.values} == {ME, OTHER})
    assert all("worker_rss_mib" in one.values for one in stream.host)
    assert {one.pid for one in stream.host if "own_rss_mib" in one.values} == {ME}


def test_each_rank_has_loader_workers_of_its_own_if_it_names_any(stream: Stream):
    stream.sampler.watch_processes({OTHER})
    stream.sampler.tell_loaders(OTHER, ())
    stream.follow(None)
    until(lambda: {one.pid for one in stream.host if "cpu_pct" in one.values} == {ME, OTHER})
    assert {one.pid for one in stream.host if "loader_cpu_pct" in one.values} == {OTHER}


def test_processes_of_other_ranks_are_read_at_the_slow_pace(stream: Stream):
    stream.sampler.watch_processes({OTHER})
    stream.sampler.start()
    until(lambda: len(stream.host) >= 5)
    first, *_, last = stream.host[:5]
    assert last.at_s - first.at_s > 3 * SLOW_S


def test_processes_ended_or_unwatched_are_not_read(stream: Stream):
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    stream.sampler.watch_processes({gone.pid, ME, OTHER})
    stream.sampler.start()
    until(lambda: {one.pid for one in stream.host} == {ME, OTHER})
    stream.sampler.watch_processes({ME})
    until(lambda: [one.pid for one in stream.host[-3:]] == [ME] * 3)
    assert gone.pid not in {one.pid for one in stream.host}
