"""What a lever can bring: each range and the measurements that it follows from."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.trace.summary import CopyUse, Summary
from gpudash.views.gains import Case, Gain, gain_of, workers_needed
from gpudash.views.recent_step import RecentStep
from tests.tui.fake_engine import PHASES

STEP = RecentStep(step_ms=10.0, data_ms=0.0, host_ms=5.0, device_ms=6.0)


def step(**values):
    return msgspec.structs.replace(STEP, **values)


def profiled(**values):
    return Summary(steps=10, step_ms=10.0, on_device=True, **values)


def gain(lever, a, b, *, profile=None, feeds=False, **values):
    case = Case(a=a, b=b, step=step(**values), phases=PHASES, profile=profile, feeds=feeds)
    found = gain_of(lever, case)
    return found.label if found is not None else None


@pytest.mark.parametrize(
    ("workers", "starved_ms", "label"),
    [
        (("2", "4"), 6.0, "+50 to +100 %"),  # twice the workers, the step without the wait 4 ms
        (("2", "4"), 4.0, "+50 to +67 %"),  # the ceiling: the step without the wait
        (("2", "8"), 2.0, "about +25 %"),
        (("0", "1"), 5.0, "+0 to +100 %"),  # beside the step instead of before it
        (("0", "2"), 5.0, "about +100 %"),
        (("2", "4"), 0.0, None),
    ],
)
def test_workers_bring_what_they_make_up_to_a_step_that_does_not_wait(workers, starved_ms, label):
    found = gain("num_workers", *workers, data_ms=starved_ms, device_ms=10.0 - starved_ms)
    assert found == label


@pytest.mark.parametrize(
    ("workers", "starved_ms", "needed"),
    [(4, 5.0, 8), (4, 2.0, 5), (0, 5.0, 1), (0, 8.0, 4), (3, 0, 3)],
)
def test_workers_are_counted_that_would_keep_the_step_from_waiting(workers, starved_ms, needed):
    waiting = step(data_ms=starved_ms, device_ms=10.0 - starved_ms)
    assert workers_needed(waiting, workers) == needed


@pytest.mark.parametrize("lever", ["data", "input", "augment_on", "prefetch_factor"])
def test_cheaper_batches_bring_at_most_the_wait(lever):
    assert gain(lever, "a", "b", data_ms=5.0, device_ms=5.0) == "up to +100 %"
    assert gain(lever, "a", "b") is None


@pytest.mark.parametrize("lever", ["data", "input", "augment_on", "prefetch_factor"])
def test_on_a_cpu_the_wait_is_no_ceiling_for_workers_and_training_share_its_cores(lever):
    assert gain(lever, "a", "b", data_ms=5.0, device_ms=5.0, on_gpu=False) is None


def test_pinned_memory_brings_at_most_the_copy():
    copied = {"phases_ms": {"copy": 2.0}}
    assert gain("pin_memory", "off", "on", **copied) == "up to +25 %"
    assert gain("pin_memory", "off", "on", **copied, overlap_ms=2.0) is None
    copies = (CopyUse("to device", is_pinned=False, count=1.0, mib=24.0, ms=2.0, gb_s=12.6),)
    case = Case(a="off", b="on", step=step(**copied), profile=profiled(copies=copies))
    assert gain_of("pin_memory", case).source.endswith("in 2.00 ms, at 12.6 GB/s of 10.0 ms")


def test_two_streams_hide_the_shorter_half_as_far_as_sms_are_free():
    halves = {"phases_ms": {"prepare": 4.0, "forward": 2.0, "backward": 4.0}}
    assert gain("pipelined", "off", "on", **halves) == "up to +67 %"
    assert gain("pipelined", "off", "on", **halves, sm_active_pct=80.0) == "up to +25 %"
    assert gain("pipelined", "off", "on") is None


def test_a_graph_brings_the_time_in_launches_and_at_most_all_but_the_devices_work():
    assert gain("cuda_graph", "off", "on") is None
    assert gain("cuda_graph", "off", "on", gpu_util_pct=80.0) == "up to +25 %"
    known = profiled(busy_ms=5.0, launch_ms=2.0)
    assert gain("cuda_graph", "off", "on", profile=known) == "+25 to +100 %"


def test_a_larger_batch_brings_more_samples_until_it_fills_the_gpu():
    assert gain("batch_size", "8", "16") is None
    assert gain("batch_size", "8", "16", gpu_util_pct=80.0) == "up to +100 %"
    assert gain("batch_size", "8", "16", gpu_util_pct=80.0, feeds=True) == "+25 to +100 %"
    assert gain("batch_size", "8", "16", gpu_util_pct=40.0, feeds=True) == "about +100 %"
    assert gain("batch_size", "8", "16", gpu_util_pct=95.0, feeds=True) is None


def test_one_kernel_for_the_optimizer_brings_at_most_its_time():
    assert gain("fused_optimizer", "off", "on", phases_ms={"optimizer": 2.0}) == "up to +25 %"


@pytest.mark.parametrize("lever", ["precision", "compile", "channels_last", "loss"])
def test_no_range_is_told_where_nothing_measured_supports_one(lever):
    assert gain(lever, "a", "b", gpu_util_pct=80.0, data_ms=5.0) is None


def test_a_range_is_told_in_words():
    assert Gain(80.4, 150.0, "").label == "+80 to +150 %"
    assert Gain(None, 1234.0, "").label == "up to +1,234 %"
    assert Gain(17.1, 17.3, "").label == "about +17 %"


@given(
    st.integers(0, 64), st.integers(0, 64), st.floats(1e-3, 1e6), st.floats(0, 1), st.floats(0, 1)
)
def test_a_range_of_workers_is_ordered_and_never_beyond_a_step_without_waits(a, b, ms, wait, busy):
    waiting = step(step_ms=ms, data_ms=ms * wait, device_ms=ms * busy)
    found = gain_of("num_workers", Case(a=str(a), b=str(b), step=waiting))
    if found is not None:
        ceiling_pct = 100 * (ms / max(ms - waiting.starved_ms, ms / 100) - 1)
        assert 0 <= found.low_pct <= found.high_pct <= ceiling_pct * (1 + 1e-9) + 1e-9
