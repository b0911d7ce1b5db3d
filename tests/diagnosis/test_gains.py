"""The gain of a lever: each range and the measurements it is derived from."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.diagnosis.gains import Case, batches_wait, gain_of, without, workers_needed
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.protocol.answer import Gain
from gpudash.protocol.inspections import Peak, Pinning, Profiled, Weights
from gpudash.trace.summary import CopyUse, KernelUse, Summary
from tests.tui.fake_engine import PHASES

STEP = RecentStep(step_ms=10.0, data_ms=0.0, host_ms=5.0, device_ms=6.0)


def step(**values):
    return msgspec.structs.replace(STEP, **values)


def profiled(**values):
    return Summary(steps=10, step_ms=10.0, on_device=True, **values)


def range_of(lever, a, b, *, profile=None, workers=0, feeds=False, **values):
    measured = {"step": step(profile=profile, **values), "phases": PHASES}
    return gain_of(lever, Case(a=a, b=b, workers=workers, feeds=feeds, **measured))


def gain(lever, a, b, **values):
    found = range_of(lever, a, b, **values)
    return found.label if found is not None else None


@pytest.mark.parametrize(
    ("workers", "starved_ms", "label"),
    [
        (("2", "4"), 6.0, "+50 to +100 %"),  # twice the workers, the step without the wait 4 ms
        (("2", "4"), 4.0, "+50 to +67 %"),  # the ceiling: the step without the wait
        (("2", "8"), 2.0, "about +25 %"),
        (("2", "4"), 0.0, None),
        (("4", "4"), 6.0, None),
    ],
)
def test_workers_gain_until_the_step_does_not_wait(workers, starved_ms, label):
    found = gain("num_workers", *workers, data_ms=starved_ms, device_ms=10.0 - starved_ms)
    assert found == label


@pytest.mark.parametrize(
    ("workers", "step_ms", "starved_ms", "label"),
    [
        ("1", 100.0, 50.0, "+0 to +99 %"),  # beside the step instead of before it
        ("2", 100.0, 50.0, "+96 to +99 %"),
        ("1", 10.0, 5.0, "up to +92 %"),  # handing over a large batch may take as long
        ("1", 0.6, 0.12, "up to +0 %"),  # handing over takes longer than the batch
    ],
)
def test_the_first_workers_gain_what_is_left_of_the_wait_once_batches_are_handed_over(
    workers, step_ms, starved_ms, label
):
    times = {"step_ms": step_ms, "data_ms": starved_ms, "device_ms": step_ms - starved_ms}
    assert gain("num_workers", "0", workers, **times) == label


@pytest.mark.parametrize(
    ("workers", "starved_ms", "needed"),
    [(4, 5.0, 8), (4, 2.0, 5), (0, 5.0, 1), (0, 8.0, 4), (3, 0, 3)],
)
def test_workers_needed_keep_the_step_from_waiting(workers, starved_ms, needed):
    waiting = step(data_ms=starved_ms, device_ms=10.0 - starved_ms)
    assert workers_needed(waiting, workers) == needed


def test_workers_needed_are_as_many_for_short_steps_and_as_now_where_no_wait_is_measured():
    short = step(step_ms=0.5, data_ms=0.375, device_ms=0.125)
    assert (workers_needed(short, 4), workers_needed(short, 0)) == (16, 3)
    assert workers_needed(step(data_ms=None), 4) == 4


def on_two_cores(rest_ms, making_ms=6.0, **values):
    """Making a batch takes 6 ms, and 4 ms of computing take `rest_ms` beside other jobs."""
    step_ms = rest_ms + making_ms
    return RecentStep(
        step_ms=step_ms,
        data_ms=making_ms,
        device_ms=rest_ms,
        on_gpu=False,
        cores=2,
        core_wait_pct=100 * (rest_ms - 4.0) / step_ms,
        **{"busy_cores": 4.0 / step_ms, "loader_cores": 0.0, **values},
    )


def test_for_batches_that_wait_as_many_workers_are_needed_beside_other_jobs_as_without_them():
    assert [workers_needed(on_two_cores(rest_ms), 0) for rest_ms in (4.0, 6.0, 8.0)] == [2, 2, 2]
    computing = {"busy_cores": 9.0 / 14.0}  # a batch takes 5 ms of a core
    assert workers_needed(on_two_cores(8.0, **computing), 0) == 1


@pytest.mark.parametrize(
    ("step", "workers", "waits"),
    [
        (on_two_cores(4.0), 0, True),
        (on_two_cores(8.0), 0, True),
        (on_two_cores(4.0, busy_cores=0.7), 0, True),  # 3 of the 6 ms
        (on_two_cores(4.0, busy_cores=0.71), 0, False),
        (on_two_cores(4.0, busy_cores=None), 0, False),
        (on_two_cores(4.0, making_ms=0.0), 0, False),
        (on_two_cores(4.0, busy_cores=1.4, loader_cores=1.0), 2, True),
        (on_two_cores(4.0, busy_cores=1.4, loader_cores=1.01), 2, False),
        (on_two_cores(8.0, busy_cores=1.0, loader_cores=0.8), 2, False),  # they ask for 1.1
        (on_two_cores(4.0, loader_cores=None), 2, False),
        (msgspec.structs.replace(on_two_cores(4.0), on_gpu=True), 0, False),
    ],
)
def test_batches_are_known_to_wait_by_the_cores_that_making_them_asks_for(step, workers, waits):
    assert batches_wait(step, workers) is waits


@pytest.mark.parametrize(
    ("busy", "wait_pct", "asked"), [(0.3, 50.0, 0.8), (1.0, 50.0, 2.0), (0.5, 50.0, 1.0)]
)
def test_the_core_wait_is_a_share_of_what_is_asked_for_or_of_one_core(busy, wait_pct, asked):
    step = RecentStep(busy_cores=busy, core_wait_pct=wait_pct)
    assert step.asked_cores == pytest.approx(asked)
    assert step.got_share == pytest.approx(busy / asked)


@pytest.mark.parametrize(("core_wait_pct", "label"), [(14.9, "about +25 %"), (15.0, "up to +25 %")])
def test_workers_that_wait_for_cores_gain_perhaps_nothing(core_wait_pct, label):
    waits = {"data_ms": 2.0, "device_ms": 8.0, "core_wait_pct": core_wait_pct}
    assert gain("num_workers", "2", "8", **waits) == label


@pytest.mark.parametrize("lever", ["data", "input", "augment_on", "prefetch_factor"])
def test_cheaper_batches_gain_at_most_the_wait(lever):
    assert gain(lever, "a", "b", data_ms=5.0, device_ms=5.0) == "up to +100 %"
    assert gain(lever, "a", "b", data_ms=10.0, device_ms=0.0) == "up to +9,900 %"  # 1 % is left
    assert gain(lever, "a", "b") is None


ON_CPU = {"on_gpu": False, "cores": 2, "busy_cores": 2.0}
FREES_CORES = ["data", "input", "augment_on"]
"""Levers that leave the loader workers less to do."""


@pytest.mark.parametrize("lever", FREES_CORES)
@pytest.mark.parametrize("unknown", [{}, {**ON_CPU, "cores": 8, "loader_cores": 1.0}])
def test_on_a_cpu_the_wait_is_no_bound_as_workers_and_training_share_its_cores(lever, unknown):
    waits = {"data_ms": 5.0, "device_ms": 5.0, **ON_CPU, **unknown}
    assert gain(lever, "a", "b", **waits) is None


@pytest.mark.parametrize("lever", FREES_CORES)
def test_a_loader_worker_holds_up_the_training_at_most_while_it_has_a_core(lever):
    assert gain(lever, "a", "b", **ON_CPU, loader_cores=0.5) == "up to +100 %"
    assert gain(lever, "a", "b", **ON_CPU, loader_cores=0.2) == "up to +25 %"
    waits = {**ON_CPU, "data_ms": 4.0, "device_ms": 6.0}
    assert gain(lever, "a", "b", **waits, loader_cores=0.2) == "up to +67 %"  # the wait is longer


@pytest.mark.parametrize(
    ("cores", "measured", "assumed"),
    [
        ({"loader_cores": 0.5}, "5.00 ms of a core in", "stands still meanwhile"),
        (
            {"loader_cores": 0.6},
            "6.00 ms of a core in",
            "stands still for 5.00 ms, as cores are shared evenly",
        ),
        (
            {"loader_cores": 0.2, "busy_cores": 0.8, "core_wait_pct": 60.0},
            "25 % of the CPU time of",
            "stands still meanwhile",
        ),
    ],
)
def test_a_gain_by_less_loading_says_what_is_measured_and_what_is_assumed(cores, measured, assumed):
    source = range_of("data", "a", "b", **{**ON_CPU, **cores}).source
    measured_part, assumed_part = source.split("; ")
    assert measured_part == f"loader workers use {measured} a step of 10.0 ms"
    assert assumed_part == f"at most the training {assumed}"


def test_a_gain_by_less_loading_is_the_wait_for_data_where_that_is_longer():
    waits = {**ON_CPU, "loader_cores": 0.2, "data_ms": 4.0, "device_ms": 6.0}
    assert (
        range_of("data", "a", "b", **waits).source == "the step waits 4.00 ms for data of 10.0 ms"
    )


def test_beside_loader_workers_the_training_gets_its_part_of_each_core():
    busy = {**ON_CPU, "loader_cores": 1.6, "data_ms": 4.0, "device_ms": 6.0}  # of a step of 10 ms
    assert gain("data", "a", "b", workers=2, **busy) == "up to +233 %"  # half of 6 ms is left
    assert gain("data", "a", "b", workers=4, **busy) == "up to +400 %"  # a third of them


def test_the_time_of_other_jobs_is_shared_by_loader_workers_and_training():
    crowded = {**ON_CPU, "core_wait_pct": 60.0, "busy_cores": 0.8, "loader_cores": 0.2}
    assert gain("data", "a", "b", **crowded) == "up to +33 %"  # a quarter of their CPU time


def test_batches_that_are_never_late_save_the_wait_on_a_cpu_too():
    waits = {**ON_CPU, "data_ms": 2.0, "device_ms": 8.0, "loader_cores": 1.0}
    assert gain("prefetch_factor", "2", "4", **waits) == "up to +25 %"


def test_preparing_samples_at_once_gains_at_most_the_time_of_preparing_on_one_stream():
    prepares = {"phases_ms": {"prepare": 2.0}}
    assert gain("rotation", "per_image", "batched", **prepares) == "up to +25 %"
    assert gain("rotation", "per_image", "batched") is None
    assert gain("rotation", "per_image", "batched", **prepares, overlap_ms=1.0) is None


def pinning(pin_ms: float, copy_ms: float, thread_pin_ms: float = 0.0, slower: float = 1.0):
    cost = Pinning(pin_ms=pin_ms, thread_pin_ms=thread_pin_ms, copy_ms=copy_ms, slower=slower)
    return profiled(profiled=traced(pinning=cost))


def traced(**values):
    return Profiled(at_s=0, path="", first_step=0, steps=10, steps_ms=100, took_ms=0, **values)


COPIED = {"phases_ms": {"copy": 6.0}}  # of 10 ms


def test_pinned_memory_makes_the_copy_faster_and_at_worst_pins_before_it():
    # 4 ms and the copy's 1 ms; with 3 ms of pinning hidden by nothing 8 ms
    assert gain("pin_memory", "off", "on", profile=pinning(3.0, 1.0), **COPIED) == "+25 to +100 %"


def test_at_worst_pinned_memory_takes_as_long_as_in_the_slowest_measurement():
    uneven = pinning(3.0, 1.0, slower=1.5)  # 4 ms, and 1.5 times 1 and 3 ms
    assert gain("pin_memory", "off", "on", profile=uneven, **COPIED) == "+0 to +100 %"


def test_copies_from_pinned_memory_become_no_faster():
    own = CopyUse(direction="to device", is_pinned=True, count=1, mib=1.0, ms=2.0, gb_s=None)
    half = msgspec.structs.replace(pinning(3.0, 1.0), copies=(own,))
    # 4 ms, 2 ms of the script's own copies and the copy's 1 ms; with 3 ms of pinning 10 ms
    assert gain("pin_memory", "off", "on", profile=half, **COPIED) == "+0 to +43 %"
    own = msgspec.structs.replace(own, ms=7.0)  # longer than all copies of the step without it
    much = msgspec.structs.replace(pinning(3.0, 1.0), copies=(own,))
    assert gain("pin_memory", "off", "on", profile=much, **COPIED) == "-29 to -9 %"


def test_pinning_on_a_thread_of_its_own_is_the_limit_where_it_takes_longer_than_a_step():
    slow = pinning(3.0, 1.0, thread_pin_ms=20.0)
    found = gain("pin_memory", "off", "on", profile=slow, workers=2, **COPIED)
    assert found == "-60 to -50 %"


def test_a_batch_is_pinned_at_the_same_rate_however_many_workers_make_it():
    slow = pinning(3.0, 1.0, thread_pin_ms=5.0)
    ranges = {
        gain("pin_memory", "off", "on", profile=slow, workers=workers, **COPIED)
        for workers in (1, 2, 8)
    }
    assert ranges == {"+0 to +100 %"}


def test_pinned_memory_has_no_range_without_a_measurement():
    assert gain("pin_memory", "off", "on", **COPIED) is None
    assert gain("pin_memory", "off", "on", profile=profiled(), **COPIED) is None
    assert gain("pin_memory", "off", "on", phases_ms={"copy": 0.01}) == "up to +0 %"
    hidden = {**COPIED, "overlap_ms": 6.0}
    assert gain("pin_memory", "off", "on", profile=pinning(3.0, 1.0), **hidden) is None


def test_two_streams_hide_the_shorter_half_as_far_as_sms_are_free():
    halves = {"phases_ms": {"prepare": 4.0, "forward": 2.0, "backward": 4.0}}
    assert gain("pipelined", "off", "on", **halves) == "up to +67 %"
    assert gain("pipelined", "off", "on", **halves, sm_active_pct=80.0) == "up to +25 %"
    assert gain("pipelined", "off", "on") is None


def test_halves_that_were_measured_in_slower_steps_are_parts_of_the_usual_one():
    slower = {"phases_ms": {"prepare": 16.0, "forward": 8.0, "backward": 16.0}}
    assert gain("pipelined", "off", "on", **slower) == "up to +67 %"


def test_a_graph_gains_the_launch_time_and_at_most_all_but_the_devices_work():
    assert gain("cuda_graph", "off", "on") is None
    assert gain("cuda_graph", "off", "on", gpu_util_pct=80.0) == "up to +25 %"
    known = profiled(busy_ms=5.0, launch_ms=2.0)
    assert gain("cuda_graph", "off", "on", profile=known) == "+25 to +100 %"
    assert gain("cuda_graph", "off", "on", profile=known, data_ms=3.0) == "about +25 %"


def test_a_larger_batch_gains_until_it_fills_the_gpu():
    assert gain("batch_size", "8", "16") is None
    assert gain("batch_size", "8", "16", gpu_util_pct=80.0) == "up to +100 %"
    assert gain("batch_size", "8", "16", gpu_util_pct=80.0, feeds=True) == "+25 to +100 %"
    assert gain("batch_size", "8", "16", gpu_util_pct=40.0, feeds=True) == "about +100 %"
    assert gain("batch_size", "8", "16", gpu_util_pct=89.9, feeds=True) == "+11 to +100 %"
    assert gain("batch_size", "8", "16", gpu_util_pct=90.0, feeds=True) is None
    assert gain("batch_size", "8", "8", gpu_util_pct=40.0) is None


def test_a_fused_optimizer_gains_at_most_its_time():
    found = range_of("fused_optimizer", "off", "on", phases_ms={"optimizer": 2.0})
    assert found.label == "up to +25 %"
    assert found.source == "the optimizer takes 2.00 ms of 10.0 ms"


PEAK = Peak(matmul_tflops={"fp32": 50.0, "tf32": 400.0, "bf16": 800.0}, memory_gb_s=2**20 / 1e3)
"""A bandwidth at which a MiB is read or written in a microsecond."""


def test_no_form_of_the_optimizer_is_faster_than_memory():
    moves = traced(peak=PEAK, weights=Weights(mib=100.0, state_mib=200.0))  # 700 MiB a step
    profile, phases_ms = profiled(profiled=moves), {"optimizer": 5.7}
    found = gain("fused_optimizer", "off", "on", profile=profile, phases_ms=phases_ms)
    assert found == "up to +100 %"
    quick = {"optimizer": 0.5}  # as in a step whose weights stay in the cache
    assert gain("fused_optimizer", "off", "on", profile=profile, phases_ms=quick) == "up to +0 %"


@pytest.mark.parametrize(("mib", "label"), [(100.0, "+6 to +11 %"), (500.0, "-9 to +11 %")])
def test_half_the_bytes_gain_half_of_the_exposed_time_less_casts(mib, label):
    about = traced(peak=PEAK, weights=Weights(mib=mib, state_mib=900.0))
    profile = profiled(exposed_ms=2.0, profiled=about)
    assert gain("gradient_compression", "none", "bf16", profile=profile) == label


def kernel(operator, ms, *, on_tensor_cores=False):
    return KernelUse("kernel", operator, "", 1.0, ms, on_tensor_cores)


def in_bf16(*kernels, precision="fp32", weights=None, **values):
    about = traced(peak=PEAK, precision=precision, weights=weights)
    at_work = sum(each.ms for each in kernels)
    profile = profiled(kernels=kernels, busy_ms=at_work, profiled=about)
    return gain("precision", "script", "bf16", profile=profile, **values)


def test_bf16_gains_by_the_peak_of_products_and_half_of_the_rest():
    products = kernel("aten::addmm", 4.0), kernel("aten::mm", 4.0)
    assert in_bf16(*products) == "up to +300 %"  # 2 ms of launches, and 0.5 ms
    assert in_bf16(*products, kernel("aten::relu", 2.0)) == "up to +567 %"
    tf32 = [kernel("aten::mm", 8.0, on_tensor_cores=True)]
    assert in_bf16(*tf32, precision="tf32") == "up to +67 %"
    both = Peak(matmul_tflops={"fp32": 50.0, "bf16": 800.0}, memory_gb_s=1.0)  # the two it needs
    about = traced(peak=both, precision="fp32")
    profile = profiled(kernels=products, busy_ms=8.0, profiled=about)
    assert gain("precision", "script", "bf16", profile=profile) == "up to +300 %"
    assert gain("precision", "script", "tf32", profile=profile) is None
    assert gain("precision", "script", "bf16") is None
    blind = msgspec.structs.replace(profile, busy_ms=None)
    assert gain("precision", "script", "bf16", profile=blind) is None


def test_convolutions_in_tf32_gain_less_although_matrices_are_multiplied_in_fp32():
    convolutions = "aten::cudnn_convolution"
    kernels = kernel(convolutions, 7.0, on_tensor_cores=True), kernel(convolutions, 1.0)
    assert in_bf16(*kernels) == "up to +67 %"


def test_bf16_gains_nothing_without_products_or_with_slower_casts():
    assert in_bf16(kernel("aten::mul", 8.0)) == "up to +0 %"
    many = Weights(mib=2000.0, state_mib=0.0)
    assert in_bf16(kernel("aten::mm", 6.0), weights=many) == "up to +0 %"
    few = Weights(mib=200.0, state_mib=0.0)
    assert in_bf16(kernel("aten::mm", 8.0), weights=few) == "up to +223 %"  # 0.6 ms of casts


def test_the_optimizer_gains_nothing_from_bf16():
    kernels = kernel("aten::mm", 4.0), kernel("aten::_fused_adamw_", 4.0)
    assert in_bf16(*kernels, phases_ms={"optimizer": 4.0}) == "up to +60 %"


@pytest.mark.parametrize("precision", ["bf16", ""])
def test_bf16_has_no_range_where_the_present_precision_is_the_same_or_unknown(precision):
    assert in_bf16(kernel("aten::mm", 8.0), precision=precision) is None


@pytest.mark.parametrize("lever", ["precision", "compile", "channels_last", "loss"])
def test_there_is_no_range_without_a_measurement_that_supports_it(lever):
    assert gain(lever, "a", "b", gpu_util_pct=80.0, data_ms=5.0) is None


def gone(limit, profile=None, **values):
    found = without(limit, step(profile=profile, **values))
    return None if found is None else found.label


@pytest.mark.parametrize(
    ("wait_pct", "busy", "cores", "label"),
    [
        (50.0, 0.5, 16, "up to +100 %"),  # one thread, that waits half of the time
        (20.0, 0.2, 16, "up to +25 %"),  # it waits a fifth of the time, and rests
        (10.0, 4.5, 16, "up to +100 %"),  # half a core is waited for, perhaps in each step's path
        (50.0, 2.0, 4, "up to +100 %"),  # all cores, with half of their time
        (80.0, 0.4, 2, "up to +400 %"),  # no more work is done than by all of them
        (90.0, 0.11, 16, "up to +9,900 %"),  # 1.1 threads, that wait 99 % of the time
        (0.5, 0.5, 16, "up to +1 %"),
    ],
)
def test_with_every_core_at_most_the_wait_is_gained(wait_pct, busy, cores, label):
    assert gone("cores", core_wait_pct=wait_pct, busy_cores=busy, cores=cores) == label


def test_cores_have_no_gain_if_their_use_or_the_wait_is_not_measured():
    assert gone("cores", core_wait_pct=50.0) is None
    assert gone("cores", core_wait_pct=0.0, busy_cores=1.0, cores=16) is None
    assert gone("cores", busy_cores=1.0, cores=16) is None
    assert gone("cores", core_wait_pct=100.0, busy_cores=0.0, cores=16) is None
    # the wait may be longer than the step, on as many threads; how many cores there are is unknown
    assert gone("cores", core_wait_pct=50.0, busy_cores=4.0) is None
    assert gone("cores", core_wait_pct=44.0, busy_cores=1.1) is None
    assert gone("cores", core_wait_pct=50.0, busy_cores=0.5) == "up to +100 %"  # one thread


def test_without_asides_the_rate_is_higher_by_their_share_to_within_one_of_them():
    assert gone("asides", aside_pct=50.0, asides=10) == "+82 to +122 %"
    assert gone("asides", aside_pct=50.0, asides=100) == "+98 to +102 %"


def test_few_asides_have_no_gain():
    assert gone("asides", aside_pct=60.0) is None
    assert gone("asides", aside_pct=60.0, asides=1) is None  # two would fill the time
    assert gone("asides", aside_pct=50.0, asides=1) is None


def test_without_its_waits_the_step_lasts_as_long_as_work_or_launches():
    assert gone("sync", profiled(busy_ms=6.0, blocked_ms=4.0), host_ms=10.0) == "up to +67 %"
    assert gone("sync", profiled(busy_ms=6.0, blocked_ms=0.0), host_ms=10.0) is None
    assert gone("sync", host_ms=10.0) is None
    assert gone("none", profiled(busy_ms=6.0, blocked_ms=4.0), host_ms=10.0) is None


def test_a_wait_for_data_is_none_of_the_steps_want_of_launches():
    idle = profiled(busy_ms=6.0, idle_ms={"host": 4.0})
    waiting, ready = step(data_ms=1.0, profile=idle), step(profile=idle)
    assert (waiting.idle_ms, ready.idle_ms) == (3.0, 4.0)
    assert step(profile=profiled()).busy_ms is None


def test_a_host_that_never_waited_would_still_launch_and_wait_for_data():
    waits = profiled(busy_ms=5.0, blocked_ms=4.0)
    late = step(host_ms=9.0, data_ms=2.0, device_ms=5.0, profile=waits)
    assert late.saved_ms == 10 - (9 - 4 + 2)
    assert step(host_ms=None, profile=waits).saved_ms is None
    only_waits = profiled(busy_ms=0.5, blocked_ms=10.0)
    assert step(host_ms=10.0, profile=only_waits).saved_ms == 10 - 0.5


def test_a_cpu_is_at_work_as_long_as_the_training_had_a_core_or_waited_for_one():
    on_cpu = step(device_ms=9.9, on_gpu=False, busy_cores=0.5, core_wait_pct=10.0)
    assert on_cpu.at_work_pct == 60.0


def test_a_range_has_a_label():
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
        assert 0 <= (found.low_pct or 0.0) <= found.high_pct <= ceiling_pct * (1 + 1e-9) + 1e-9
