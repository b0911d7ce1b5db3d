"""Traces made by hand: times in µs on the trace's axis, which begins at `BEGAN_NS`."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.protocol.inspections import Profiled, SyncCall
from gpudash.trace.model import KINDS, Trace, TraceEvents, TraceLane, TraceStep
from gpudash.trace.summary import SyncUse
from gpudash.trace.syncs import NOTED_WITHIN_US, syncs

BEGAN_NS = 1_790_857_026_000_000_000
MAIN, ANOTHER = 438, 512
LANES = (
    TraceLane(kind="host", label="main", id=MAIN),
    TraceLane(kind="host", label="autograd", id=ANOTHER),
    TraceLane(kind="stream", label="stream 438", id=MAIN),
)
BACKWARD = "autograd::engine::evaluate_function: IndexBackward0"
STEPS = 2
"""Calls noted in the trace by gpudash."""


def trace(events, calls=(), *, steps=((0, 1000),), began_ns=BEGAN_NS):
    """Make one of (begin, duration, kind, name, lane = 0, launch = −1)."""
    rows = [(*event, *(0, -1)[len(event) - 4 :]) for event in events]
    names = sorted({row[3] for row in rows})
    begins, durations, kinds, called, lanes, launches = (
        zip(*rows, strict=True) if rows else [()] * 6
    )
    return Trace(
        name="hand.json",
        names=tuple(names),
        lanes=LANES,
        events=TraceEvents(
            begin_us=np.array(begins, np.float64),
            duration_us=np.array(durations, np.float64),
            kind=np.array([KINDS.index(kind) for kind in kinds], np.uint8),
            name=np.array([names.index(name) for name in called], np.int32),
            lane=np.array(lanes, np.int16),
            launch=np.array(launches, np.int32),
            bytes=np.zeros(len(rows), np.int64),
        ),
        steps=tuple(TraceStep(number=n, begin_us=b, end_us=e) for n, (b, e) in enumerate(steps)),
        began_ns=began_ns,
        profiled=Profiled(
            at_s=0, path="", first_step=0, steps=STEPS, steps_ms=1, took_ms=1, syncs=tuple(calls)
        ),
    )


def call(at_us, line=5, what="item", *, thread=MAIN, file="train.py", began_us=None):
    at_ns, began_ns = (0 if us is None else BEGAN_NS + round(us * 1000) for us in (at_us, began_us))
    return SyncCall(
        at_ns=at_ns,
        thread=thread,
        file=file,
        line=line,
        function="main",
        what=what,
        began_ns=began_ns,
    )


def use(line=5, what="item", *, count=1.0, blocked_ms, file="train.py", function="main"):
    return SyncUse(
        file=file, line=line, function=function, what=what, count=count, blocked_ms=blocked_ms
    )


def unlined(what, *, count=1.0, blocked_ms):
    return use(0, what, count=count, blocked_ms=blocked_ms, file="", function="")


def item(at_us, waits_us):
    """Return the events of `.item()` in a trace."""
    return [
        (at_us, waits_us + 2, "operator", "aten::item"),
        (at_us + 1, waits_us, "sync", "cudaStreamSynchronize"),
    ]


# ---- a call and what it waited for


def test_a_call_has_the_time_of_the_wait_that_it_followed():
    assert syncs(trace(item(100, 50), [call(155)])) == (use(blocked_ms=0.05),)


@pytest.mark.parametrize("skew_us", [-40, 3])
def test_clocks_may_differ_a_little(skew_us):
    events = [*item(100, 50), *item(160, 80)]
    calls = [call(154 + skew_us, line=5), call(245 + skew_us, line=6)]
    assert syncs(trace(events, calls)) == (use(6, blocked_ms=0.08), use(5, blocked_ms=0.05))


def test_calls_of_one_line_are_one_use_a_step():
    steps = [(0, 500), (500, 1000)]
    events = [*item(100, 50), *item(200, 50), *item(600, 100)]
    calls = [call(155), call(255), call(705)]
    assert syncs(trace(events, calls, steps=steps)) == (use(count=1.5, blocked_ms=0.1),)


def test_an_operator_that_waits_twice_belongs_to_one_line_with_both_calls():
    events = [
        (100, 100, "operator", "aten::index"),
        (110, 20, "sync", "cudaStreamSynchronize"),
        (150, 30, "sync", "cudaStreamSynchronize"),
    ]
    calls = [call(201, what="index"), call(202, what="index")]
    assert syncs(trace(events, calls)) == (use(what="index", count=2.0, blocked_ms=0.05),)


def test_a_call_without_a_wait_in_the_trace_counts():
    assert syncs(trace([], [call(100)])) == (use(blocked_ms=0.0),)


def test_a_call_long_after_a_wait_does_not_claim_it():
    calls = [call(20 + NOTED_WITHIN_US)]
    assert syncs(trace(item(10, 5), calls, steps=[(0, 1e6)])) == (
        unlined("aten::item", blocked_ms=0.005),
        use(blocked_ms=0.0),
    )


def test_a_wait_on_another_thread_is_not_this_ones():
    assert syncs(trace(item(100, 50), [call(155, thread=ANOTHER)])) == (
        unlined("aten::item", blocked_ms=0.05),
        use(blocked_ms=0.0),
    )


def test_a_call_whose_begin_is_known_has_all_that_waited_in_it():
    events = [
        (40, 9, "sync", "cudaFree"),
        (100, 20, "sync", "cudaFree"),
        (130, 30, "sync", "cudaFree"),
    ]
    empties = call(170, what="empty_cache", began_us=90)
    assert syncs(trace(events, [empties])) == (
        use(what="empty_cache", blocked_ms=0.05),
        unlined("cudaFree", blocked_ms=0.009),
    )


# ---- waits without a line


def test_a_wait_that_nobody_noted_has_the_name_of_the_outermost_operator():
    events = [
        (100, 100, "operator", "aten::index_put_"),
        (110, 60, "operator", "aten::to"),
        (120, 40, "sync", "cudaStreamSynchronize"),
        (400, 30, "sync", "cudaDeviceSynchronize"),
        (900, 1, "sync", "cudaStreamSynchronize"),
    ]
    assert syncs(trace(events)) == (
        unlined("aten::index_put_", blocked_ms=0.04),
        unlined("cudaDeviceSynchronize", blocked_ms=0.03),
        unlined("cudaStreamSynchronize", blocked_ms=0.001),
    )


def test_the_profilers_own_wait_for_the_last_step_is_not_counted():
    events = [
        (0, 899, "annotation", "ProfilerStep#0"),
        *item(100, 50),
        (890, 5, "sync", "cudaDeviceSynchronize"),
        (900, 90, "sync", "cudaDeviceSynchronize"),  # by ours
        (991, 2, "sync", "cudaDeviceSynchronize"),  # by torch's, as it ends
    ]
    assert syncs(trace(events, [call(155)])) == (
        use(blocked_ms=0.05),
        unlined("cudaDeviceSynchronize", blocked_ms=0.005),
    )


def test_a_copy_from_pageable_memory_waits_though_torch_does_not_say_so():
    events = [
        (100, 100, "operator", "aten::to"),
        (110, 60, "runtime", "cudaMemcpyAsync"),
        (115, 40, "copy", "Memcpy HtoD (Pageable -> Device)", 2, 1),
        (300, 5, "runtime", "cudaMemcpyAsync"),
        (310, 40, "copy", "Memcpy HtoD (Pinned -> Device)", 2, 3),
    ]
    assert syncs(trace(events)) == (unlined("aten::to", blocked_ms=0.06),)


def test_a_wait_before_a_noted_one_is_not_blamed_on_its_line():
    events = [
        (100, 60, "operator", "aten::to"),
        (110, 50, "sync", "cudaMemcpy"),
        *item(200, 20),
    ]
    assert syncs(trace(events, [call(225)])) == (
        unlined("aten::to", blocked_ms=0.05),
        use(blocked_ms=0.02),
    )


# ---- waits of a backward pass, which are reported at its end


@pytest.mark.parametrize("lane", [0, 1])
def test_a_wait_in_the_backward_pass_belongs_to_its_line(lane):
    events = [
        (100, 200, "operator", BACKWARD, lane),
        (120, 100, "operator", "aten::index_put_", lane),
        (130, 70, "sync", "cudaStreamSynchronize", lane),
        (400, 90, "operator", BACKWARD, lane),
        (410, 30, "operator", "aten::nonzero", lane),
        (415, 20, "sync", "cudaStreamSynchronize", lane),
    ]
    calls = [call(900, 9, "backward"), call(901, 9, "backward")]
    assert syncs(trace(events, calls)) == (use(9, "backward", count=2.0, blocked_ms=0.09),)


def test_a_wait_of_a_backward_written_in_python_belongs_to_the_line_in_it():
    events = [
        (100, 200, "operator", BACKWARD, 1),
        (120, 100, "operator", "aten::item", 1),
        (130, 70, "sync", "cudaStreamSynchronize", 1),
    ]
    calls = [call(225, 3, thread=ANOTHER), call(900, 9, "backward")]
    assert syncs(trace(events, calls)) == (
        use(3, blocked_ms=0.07),
        use(9, "backward", blocked_ms=0.0),
    )


def test_the_next_steps_backward_is_not_blamed():
    events = [
        (100, 200, "operator", BACKWARD, 1),
        (130, 70, "sync", "cudaStreamSynchronize", 1),
    ]
    calls = [call(900, 9, "backward")]
    assert syncs(trace(events, calls, steps=[(0, 500), (500, 1000)])) == (
        unlined("cudaStreamSynchronize", count=0.5, blocked_ms=0.035),
        use(9, "backward", count=0.5, blocked_ms=0.0),
    )


# ---- steps


def test_events_outside_of_the_steps_do_not_count():
    events = [*item(10, 20), (600, 300, "sync", "cudaDeviceSynchronize")]
    assert syncs(trace(events, [call(35), call(950)], steps=[(100, 500)])) == ()


def test_a_trace_without_steps_counts_whole_over_the_steps_that_gpudash_noted():
    assert syncs(trace(item(100, 50), [call(155)], steps=())) == (use(count=0.5, blocked_ms=0.025),)


def test_a_trace_that_does_not_say_when_it_was_made_has_counts_and_times_apart():
    assert syncs(trace(item(100, 50), [call(155)], began_ns=None)) == (
        unlined("aten::item", blocked_ms=0.05),
        use(blocked_ms=0.0),
    )


def test_a_trace_without_events_or_calls_has_none():
    assert syncs(trace([])) == ()


# ---- whatever comes

times = st.integers(0, 2000).map(float)
host_events = st.lists(
    st.tuples(
        times,
        st.integers(0, 500).map(float),
        st.sampled_from(
            [
                ("operator", "aten::item"),
                ("operator", BACKWARD),
                ("runtime", "cudaLaunchKernel"),
                ("sync", "cudaStreamSynchronize"),
                ("sync", "cudaDeviceSynchronize"),
            ]
        ),
        st.integers(0, 1),
    ),
    max_size=30,
).map(lambda rows: sorted((begin, lasts, *called, lane) for begin, lasts, called, lane in rows))
noted = st.lists(
    st.builds(
        call,
        times,
        st.integers(1, 3),
        thread=st.sampled_from([MAIN, ANOTHER, 1]),
        file=st.sampled_from(["train.py", "train.py", ""]),
        began_us=st.none() | times,
    ),
    max_size=20,
)
step_times = st.lists(times, max_size=6, unique=True).map(
    lambda borders: [*pairwise(sorted(borders))]
)


@given(host_events, noted, step_times)
def test_every_wait_and_every_call_within_the_steps_is_in_exactly_one_use(events, calls, steps):
    uses = syncs(trace(events, calls, steps=steps))

    def inside(at_us):
        return not steps or any(begin <= at_us <= end for begin, end in steps)

    count = len(steps) or STEPS
    waited_us = sum(lasts for begin, lasts, kind, *_ in events if kind == "sync" and inside(begin))
    assert sum(one.blocked_ms for one in uses) * 1e3 * count == pytest.approx(waited_us)
    kept = sum(inside((one.at_ns - BEGAN_NS) / 1e3) for one in calls if one.file)
    assert sum(one.count for one in uses if one.file) * count == pytest.approx(kept)
    places = [(one.file, one.line, one.function, one.what) for one in uses]
    assert len(places) == len(set(places))
