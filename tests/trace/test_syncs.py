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


USES = {
    # a call and what it waited for
    "a call has the time of the wait that it followed": (
        item(100, 50),
        [call(155)],
        [use(blocked_ms=0.05)],
    ),
    "an operator that waits twice belongs to one line with both calls": (
        [
            (100, 100, "operator", "aten::index"),
            (110, 20, "sync", "cudaStreamSynchronize"),
            (150, 30, "sync", "cudaStreamSynchronize"),
        ],
        [call(201, what="index"), call(202, what="index")],
        [use(what="index", count=2.0, blocked_ms=0.05)],
    ),
    "a call without a wait in the trace counts": ([], [call(100)], [use(blocked_ms=0.0)]),
    "a wait on another thread is not this one's": (
        item(100, 50),
        [call(155, thread=ANOTHER)],
        [unlined("aten::item", blocked_ms=0.05), use(blocked_ms=0.0)],
    ),
    "a call whose begin is known has all that waited in it": (
        [
            (40, 9, "sync", "cudaFree"),
            (100, 20, "sync", "cudaFree"),
            (130, 30, "sync", "cudaFree"),
        ],
        [call(170, what="empty_cache", began_us=90)],
        [use(what="empty_cache", blocked_ms=0.05), unlined("cudaFree", blocked_ms=0.009)],
    ),
    # waits without a line
    "a wait that nobody noted has the name of the outermost operator": (
        [
            (100, 100, "operator", "aten::index_put_"),
            (110, 60, "operator", "aten::to"),
            (120, 40, "sync", "cudaStreamSynchronize"),
            (400, 30, "sync", "cudaDeviceSynchronize"),
            (900, 1, "sync", "cudaStreamSynchronize"),
        ],
        [],
        [
            unlined("aten::index_put_", blocked_ms=0.04),
            unlined("cudaDeviceSynchronize", blocked_ms=0.03),
            unlined("cudaStreamSynchronize", blocked_ms=0.001),
        ],
    ),
    "the profiler's own wait for the last step is not counted": (
        [
            (0, 899, "annotation", "ProfilerStep#0"),
            *item(100, 50),
            (890, 5, "sync", "cudaDeviceSynchronize"),
            (900, 90, "sync", "cudaDeviceSynchronize"),  # by ours
            (991, 2, "sync", "cudaDeviceSynchronize"),  # by torch's, as it ends
        ],
        [call(155)],
        [use(blocked_ms=0.05), unlined("cudaDeviceSynchronize", blocked_ms=0.005)],
    ),
    "a copy from pageable memory waits though torch does not say so": (
        [
            (100, 100, "operator", "aten::to"),
            (110, 60, "runtime", "cudaMemcpyAsync"),
            (115, 40, "copy", "Memcpy HtoD (Pageable -> Device)", 2, 1),
            (300, 5, "runtime", "cudaMemcpyAsync"),
            (310, 40, "copy", "Memcpy HtoD (Pinned -> Device)", 2, 3),
        ],
        [],
        [unlined("aten::to", blocked_ms=0.06)],
    ),
    "a wait before a noted one is not blamed on its line": (
        [(100, 60, "operator", "aten::to"), (110, 50, "sync", "cudaMemcpy"), *item(200, 20)],
        [call(225)],
        [unlined("aten::to", blocked_ms=0.05), use(blocked_ms=0.02)],
    ),
    # waits of a backward pass, which are reported at its end
    "a wait of a backward pass written in Python belongs to the line in it": (
        [
            (100, 200, "operator", BACKWARD, 1),
            (120, 100, "operator", "aten::item", 1),
            (130, 70, "sync", "cudaStreamSynchronize", 1),
        ],
        [call(225, 3, thread=ANOTHER), call(900, 9, "backward")],
        [use(3, blocked_ms=0.07), use(9, "backward", blocked_ms=0.0)],
    ),
    "a trace without events or calls has none": ([], [], []),
}


@pytest.mark.parametrize(("events", "calls", "uses"), USES.values(), ids=USES)
def test_what_a_line_or_an_operator_waited_for(events, calls, uses):
    assert syncs(trace(events, calls)) == tuple(uses)


@pytest.mark.parametrize("skew_us", [-40, 3])
def test_clocks_may_differ_a_little(skew_us):
    events = [*item(100, 50), *item(160, 80)]
    calls = [call(154 + skew_us, line=5), call(245 + skew_us, line=6)]
    assert syncs(trace(events, calls)) == (use(6, blocked_ms=0.08), use(5, blocked_ms=0.05))


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


IN_STEPS = {
    "calls of one line are one use a step": (
        [(0, 500), (500, 1000)],
        [*item(100, 50), *item(200, 50), *item(600, 100)],
        [call(155), call(255), call(705)],
        [use(count=1.5, blocked_ms=0.1)],
    ),
    "a call long after a wait does not claim it": (
        [(0, 1e6)],
        item(10, 5),
        [call(20 + NOTED_WITHIN_US)],
        [unlined("aten::item", blocked_ms=0.005), use(blocked_ms=0.0)],
    ),
    "the next step's backward pass is not blamed": (
        [(0, 500), (500, 1000)],
        [
            (100, 200, "operator", BACKWARD, 1),
            (130, 70, "sync", "cudaStreamSynchronize", 1),
        ],
        [call(900, 9, "backward")],
        [
            unlined("cudaStreamSynchronize", count=0.5, blocked_ms=0.035),
            use(9, "backward", count=0.5, blocked_ms=0.0),
        ],
    ),
    "events outside of the steps do not count": (
        [(100, 500)],
        [*item(10, 20), (600, 300, "sync", "cudaDeviceSynchronize")],
        [call(35), call(950)],
        [],
    ),
    "a trace without steps counts whole over the steps that gpudash noted": (
        [],
        item(100, 50),
        [call(155)],
        [use(count=0.5, blocked_ms=0.025)],
    ),
}


@pytest.mark.parametrize(("steps", "events", "calls", "uses"), IN_STEPS.values(), ids=IN_STEPS)
def test_what_counts_in_which_step(steps, events, calls, uses):
    assert syncs(trace(events, calls, steps=steps)) == tuple(uses)


def test_a_trace_that_does_not_say_when_it_was_made_has_counts_and_times_apart():
    assert syncs(trace(item(100, 50), [call(155)], began_ns=None)) == (
        unlined("aten::item", blocked_ms=0.05),
        use(blocked_ms=0.0),
    )


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
