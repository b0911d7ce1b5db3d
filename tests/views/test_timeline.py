"""A trace as rows, and what the cells of a row show."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.trace.model import TraceLane
from gpudash.views.timeline import (
    SEVERAL,
    beside,
    cells_of,
    details_of,
    longest,
    matches,
    place_of,
    timeline_of,
)
from tests.having import having
from tests.tui.traces import trace_of, training_trace

HOST, STREAM = TraceLane("host", "main"), TraceLane("stream", "stream 7")


def kernels(*times, lanes=(HOST, STREAM)):
    """The row of a stream with kernels of these begins and durations."""
    made = [(begin, duration, "kernel", f"k{n}", 1) for n, (begin, duration) in enumerate(times)]
    return timeline_of(trace_of(made, lanes)).rows[0]


def shown(row, begin, end, columns):
    cells = cells_of(row, begin, end, columns)
    return cells.position.tolist(), [round(share, 3) for share in cells.share.tolist()]


# ── rows ────────────────────────────────────────────────────────────────────────────────


def test_the_device_comes_first_and_a_thread_has_a_row_for_each_depth():
    rows = timeline_of(training_trace(1)).rows
    assert [(row.kind, row.label, row.depth) for row in rows] == [
        ("stream", "stream 7", 0),
        ("stream", "stream 13", 0),
        ("copies", "copies", 0),
        ("communication", "nccl", 0),
        ("overlap", "overlap", 0),
        ("waits", "main", 0),
        ("host", "main", 0),
        ("host", "main", 1),
        ("host", "main", 2),
    ]


@pytest.mark.parametrize(
    ("what", "made", "rows"),
    [
        ("a lane without events has no row", [(0, 1, "kernel", "k", 1)], [[0]]),
        ("nor has a trace without events", [], []),
        ("of two that begin together the longer one encloses",
         [(0, 5, "runtime", "inner", 0), (0, 9, "operator", "outer", 0)], [[1], [0]]),
        ("what follows at once is not deeper",
         [(0, 5, "operator", "a", 0), (5, 5, "operator", "b", 0), (10, 0, "operator", "c", 0)],
         [[0, 1, 2]]),
        ("the annotation of a step is no event of a row",
         [(0, 9, "annotation", "ProfilerStep#3", 0), (1, 2, "annotation", "mine", 0)], [[1]]),
    ],
)  # fmt: skip
def test_events_have_rows(what, made, rows):
    timeline = timeline_of(trace_of(made, (HOST, STREAM)))
    assert [row.events.tolist() for row in timeline.rows] == rows, what
    assert timeline.length_us > 0


def test_phases_are_the_first_row_and_bridge_the_pauses_between_kernels():
    made = [
        (0.0, 100.0, "annotation", "nn.Module: Net", 0),
        (1.0, 1.0, "runtime", "cudaLaunchKernel", 0),
        (50.0, 10.0, "kernel", "a", 1, 1, 0),
        (65.0, 10.0, "kernel", "b", 1, 1, 0),
        (90.0, 10.0, "kernel", "c", 1, 1, 0),
        (110.0, 10.0, "kernel", "d", 1, 1, 0),
    ]
    timeline = timeline_of(trace_of(made, (HOST, STREAM)))
    row = timeline.rows[0]
    assert (row.kind, row.lane, row.depth, {*row.events.tolist()}) == ("phase", -1, 0, {-1})
    assert [row.phase(n) for n in range(len(row.begin_us))] == ["forward"] * 3
    ends = [(row.begin_us[n], row.end_us(n)) for n in range(3)]
    assert ends == [(50.0, 75.0), (90.0, 100.0), (110.0, 120.0)]
    assert details_of(timeline, row, 0).name == "forward"


def test_streams_that_are_never_at_work_together_have_an_empty_row():
    lanes = (HOST, STREAM, TraceLane("stream", "stream 13"))
    apart = trace_of([(0, 2, "kernel", "a", 1), (2, 2, "kernel", "b", 2)], lanes)
    (row,) = [row for row in timeline_of(apart).rows if row.kind == "overlap"]
    assert row.lane == -1
    assert shown(row, 0, 4, 2) == ([-1, -1], [0, 0])


# ── cells ───────────────────────────────────────────────────────────────────────────────


FEW = ((0, 2), (2, 1), (6, 1), (7.5, 0.25))
MANY = (*((n, 0.1) for n in range(50)), (50, 3), *((60 + n, 0.1) for n in range(50)))
BELOW = ((0, 4), (1, 2), (3, 3))


@pytest.mark.parametrize(
    ("what", "times", "where", "cells"),
    [
        ("the event that fills most of a cell, and how much all fill",
         FEW, (0, 8, 2), ([0, 2], [0.75, 0.312])),
        ("in smaller cells, too",
         FEW, (0, 8, 8), ([0, 0, 1, -1, -1, -1, 2, 3], [1, 1, 1, 0, 0, 0, 1, 0.25])),
        ("of many in a cell the longest", MANY, (0, 110, 1), ([50], [0.118])),
        ("an event longer than what is shown fills it",
         [(0, 1e6)], (500, 501, 3), ([0, 0, 0], [1, 1, 1])),
        ("what lies under an earlier event is not counted twice",
         BELOW, (0, 8, 1), ([0], [0.75])),
        ("but seen where that has ended", BELOW, (4, 6, 1), ([2], [1])),
        ("of three in a cell the one between may be the longest",
         [(0, 1), (1, 3), (4, 1)], (0, 5, 1), ([1], [1])),
        ("the first of equal ones", [(0, 1), (1, 1), (2, 1)], (0, 3, 1), ([0], [1])),
    ],
)  # fmt: skip
def test_a_cell_shows(what, times, where, cells):
    assert shown(kernels(*times), *where) == cells, what


def test_an_event_without_duration_is_shown():
    for at in (0.0, 2.0, 2.5):
        assert 0 in shown(kernels((at, 0.0)), 0, 4, 4)[0]


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 30)), max_size=30),
    st.floats(0, 90),
    st.floats(0.01, 60),
    st.integers(1, 12),
)
def test_cells_agree_with_counting_event_by_event(times, begin, length, columns):
    times = sorted(times)
    if not times:
        return
    row = kernels(*times)
    edges = np.linspace(begin, begin + length, columns + 1)
    ends = [row.end_us(position) for position in range(len(row.begin_us))]
    cells = cells_of(row, begin, begin + length, columns)
    for cell, (left, right) in enumerate(pairwise(edges)):
        inside = [min(e, right) - max(b, left) for b, e in zip(row.begin_us, ends, strict=True)]
        filled = sum(max(one, 0.0) for one in inside) / (right - left)
        assert cells.share[cell] == pytest.approx(filled, abs=1e-6)
        if max(inside) > 1e-6:
            assert inside[cells.position[cell]] == pytest.approx(max(inside), abs=1e-4)


# ── finding ─────────────────────────────────────────────────────────────────────────────


def test_the_events_beside_a_moment():
    row = kernels((0, 2), (2, 1), (6, 1))
    assert [beside(row, at, 1) for at in (-1, 0, 2, 6)] == [0, 1, 2, None]
    assert [beside(row, at, -1) for at in (0, 1, 6, 9)] == [None, 0, 1, 2]


def test_the_longest_work_is_no_wait_and_begins_between_the_moments():
    made = [
        (0.0, 9.0, "operator", "before", 0),
        (10.0, 2.0, "operator", "short", 0),
        (20.0, 5.0, "operator", "long", 0),
        (30.0, 50.0, "sync", "cudaDeviceSynchronize", 0),
    ]
    trace = trace_of(made, (HOST,))
    row = timeline_of(trace).rows[-1]
    assert longest(trace, row, 10.0, 100.0) == 2
    assert longest(trace, row, 30.0, 100.0) is None


def test_a_search_finds_kernels_and_only_without_any_what_the_host_does():
    timeline = timeline_of(training_trace(2))
    names = timeline.trace.names
    assert {names[timeline.trace.events.name[one]] for one in matches(timeline, "CONV")} == {
        "void cudnn::conv<float, 4>(int)"
    }
    assert len(matches(timeline, "aten::item")) == 2
    assert len(matches(timeline, "no such name")) == 0


def test_every_event_is_found_where_it_is_drawn():
    timeline = timeline_of(training_trace(2))
    for event in range(len(timeline.trace.events)):
        row, position = place_of(timeline, event)
        assert timeline.rows[row].events[position] == event
        assert timeline.rows[row].kind in ("stream", "host")


def test_a_kernel_knows_its_launch_and_what_encloses_that():
    timeline = timeline_of(training_trace(2))
    row = next(row for row in timeline.rows if row.label == "stream 7")
    found = details_of(timeline, row, 3)  # of the second step
    assert (found.name, found.lane) == ("void cudnn::conv<float, 4>(int)", "stream 7")
    assert (found.begin_us, found.duration_us, found.delay_us) == (11_000, 3_000, 500)
    assert found.stack == ("aten::conv2d", "aten::cudnn_convolution", "cudaLaunchKernel")


def test_the_first_event_of_a_trace_may_be_a_launch_and_enclosed():
    made = [
        (1, 2, "runtime", "cudaLaunchKernel", 0),
        (0, 9, "operator", "aten::mm", 0),
        (4, 3, "kernel", "gemm", 1, 0, 0),
        (9, 1, "operator", "aten::add", 0),
    ]
    timeline = timeline_of(trace_of(made, (HOST, STREAM)))
    kernel, outer, inner = timeline.rows
    assert details_of(timeline, kernel, 0) == having(
        name="gemm", delay_us=3.0, stack=("aten::mm", "cudaLaunchKernel")
    )
    assert details_of(timeline, inner, 0) == having(
        name="cudaLaunchKernel", kind="runtime", stack=("aten::mm",), delay_us=None
    )
    assert details_of(timeline, outer, 1).stack == ()
    timeline = timeline_of(trace_of([(0, 3, "kernel", "gemm", 1)], (HOST, STREAM)))
    assert details_of(timeline, timeline.rows[0], 0).stack == ()


def test_what_has_ended_before_encloses_nothing():
    made = [
        (0, 2, "operator", "before", 0),
        (2, 6, "operator", "outer", 0),
        (3, 1, "operator", "first", 0),
        (4, 1, "operator", "second", 0),
        (4.25, 0.5, "operator", "inner", 0),
    ]
    timeline = timeline_of(trace_of(made, (HOST,)))
    row, position = place_of(timeline, 4)
    assert details_of(timeline, timeline.rows[row], position).stack == ("outer", "second")


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("waits", having(kind="sync", stack=("aten::item",), delay_us=None)),
        ("overlap", having(name=SEVERAL, kind=None, duration_us=2000)),
    ],
)
def test_a_wait_knows_what_encloses_it_and_overlapping_streams_name_no_event(kind, known):
    timeline = timeline_of(training_trace(1))
    (row,) = (row for row in timeline.rows if row.kind == kind)
    assert details_of(timeline, row, 0) == known
