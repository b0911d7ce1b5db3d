"""Times add up in any trace, and agree with a count microsecond by microsecond."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.trace.accounting import summarise
from gpudash.trace.nesting import innermost
from gpudash.trace.read import read
from gpudash.trace.spans import overlap, union
from tests.trace.made import document, launched, operator, step

LENGTH = 60
MOMENTS = st.integers(0, LENGTH - 1)
SPANS = st.lists(st.tuples(MOMENTS, st.integers(0, 20)), max_size=12)
KERNELS = st.lists(
    st.tuples(
        MOMENTS,
        st.integers(1, 20),
        st.integers(0, 15),  # launched so long before
        st.sampled_from([7, 20, 24]),
        st.sampled_from(["k", "ncclDevKernel_AllReduce", "cutlass_tensorop_s1688"]),
    ),
    min_size=1,
    max_size=12,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("traces") / "trace.json"


def summary_of(path, kernels):
    events = [operator("first", -20, 1), step(1, 0, LENGTH)]
    for ts, dur, ahead, stream, name in kernels:
        events += launched(ts, dur, call_ts=ts - ahead, stream=stream, name=name)
    path.write_text(json.dumps(document(events)), encoding="utf-8")
    trace = read(path)
    return trace, summarise(trace)


def busy_by_stream(trace):
    """The microseconds in which each stream was busy, counted one by one."""
    events, (one,) = trace.events, trace.steps
    length = round(one.end_us - one.begin_us)
    busy = {}
    for i in np.flatnonzero(events.are("kernel", "collective")):
        row = busy.setdefault(int(events.lane[i]), np.zeros(length, bool))
        begin = round(events.begin_us[i] - one.begin_us)
        row[begin : begin + round(events.duration_us[i])] = True
    return np.array(list(busy.values())).reshape(-1, length)


@given(KERNELS)
def test_busy_and_idle_are_the_step_and_overlap_is_counted_right(path, kernels):
    trace, summary = summary_of(path, kernels)
    counted = busy_by_stream(trace)
    assert summary.busy_ms + sum(summary.idle_ms.values()) == pytest.approx(summary.step_ms)
    assert summary.busy_ms == pytest.approx(counted.any(axis=0).sum() / 1000)
    assert sum(one.busy_ms for one in summary.streams) == pytest.approx(counted.sum() / 1000)
    if summary.overlap_ms is not None:
        assert summary.overlap_ms == pytest.approx((counted.sum(axis=0) >= 2).sum() / 1000)


@given(KERNELS)
def test_no_part_is_negative_or_larger_than_its_whole(path, kernels):
    _, summary = summary_of(path, kernels)
    tolerance = 1e-9
    assert all(ms >= 0 for ms in summary.idle_ms.values())
    assert all(0 <= one.busy_ms <= summary.busy_ms + tolerance for one in summary.streams)
    assert -tolerance <= summary.exposed_ms <= summary.communication_ms + tolerance
    assert sum(ms for _, _, ms in summary.gaps) == pytest.approx(sum(summary.idle_ms.values()))
    if summary.overlap_ms is not None:  # whenever two are busy, one is not the busiest
        times = sorted(one.busy_ms for one in summary.streams)
        assert 0 <= summary.overlap_ms <= sum(times[:-1]) + tolerance


@given(SPANS, SPANS)
def test_spans_agree_with_counting(left, right):
    def counted(spans):
        row = np.zeros(LENGTH + 20, bool)
        for begin, length in spans:
            row[begin : begin + length] = True
        return row

    def merged(spans):
        columns = np.array(spans, float).reshape(-1, 2)
        return union(columns[:, 0], columns.sum(axis=1))

    assert merged(left).total_us == counted(left).sum()
    both = counted(left) & counted(right)
    assert overlap([merged(left), merged(right)]).total_us == both.sum()
    inner = merged(left).within(10, 50)
    assert inner.total_us == counted(left)[10:50].sum()
    assert inner.between(10, 50).total_us == 40 - inner.total_us


@st.composite
def trees(draw, begin=0, end=64, depth=3):
    """Spans that nest or follow each other, like calls of a thread."""
    found = [(begin, end)]
    at = begin + 1
    while depth and at + 2 < end and draw(st.booleans()):
        until = draw(st.integers(at + 1, end - 1))
        found += draw(trees(at, until, depth - 1))
        at = until + 1
    return found


@given(trees(), st.data())
def test_the_innermost_container_agrees_with_a_full_search(path, spans, data):
    path.write_text(
        json.dumps(document([operator(f"{i}", b, e - b) for i, (b, e) in enumerate(spans)])),
        encoding="utf-8",
    )
    events = read(path).events
    mask = st.lists(st.booleans(), min_size=len(events), max_size=len(events)).map(np.array)
    containers, inner = data.draw(mask), data.draw(mask)

    def searched(i):
        around = [
            j
            for j in np.flatnonzero(containers)
            if j != i
            and events.begin_us[j] <= events.begin_us[i]
            and events.end_us[j] >= events.end_us[i]
        ]
        return min(around, key=lambda j: events.duration_us[j], default=-1)

    expected = [searched(i) for i in np.flatnonzero(inner)]
    assert innermost(events, containers, inner).tolist() == expected
