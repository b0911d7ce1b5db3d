"""The throughput chart: its data, and the widget alone at many sizes."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual import events
from textual.geometry import Size

from gpudash.present.axes import TimeRange, TimeView
from gpudash.present.throughput import (
    columns_of,
    compared_in,
    label_in,
    scale_of,
    side_at,
    side_of,
    throughput,
)
from gpudash.snapshot import BlockShown, Marker, Series
from gpudash.tui.widgets.throughput import ThroughputChart
from tests.tui.alone import Alone
from tests.tui.driving import mouse
from tests.tui.fake_engine import training
from tests.tui.frames import painted, painted_at

LIVE = TimeView()
TEN_S = TimeRange(begin_s=100.0, end_s=110.0, columns=10)


def run(values, **changes):
    """A run whose ticks of half a second measured these samples/s."""
    at_s = tuple(0.5 * (tick + 1) for tick in range(len(values)))
    series = Series(at_s=at_s, values={"samples_per_s": tuple(values)})
    return msgspec.structs.replace(training(2), series=series, markers=(), **changes)


def change(at_s, label="pipelined=on"):
    return Marker(kind="change", at_s=at_s, label=label)


# ── what is shown ───────────────────────────────────────────────────────────────────────


def test_samples_are_drawn_and_steps_where_nobody_knows_the_samples():
    assert throughput(training()).unit == "samples/s"
    rates = {"steps_per_s": (7.0,)}
    unknown = run([], samples_per_s=None)
    unknown = msgspec.structs.replace(unknown, series=Series(at_s=(0.5,), values=rates))
    data = throughput(unknown)
    assert (data.unit, data.values, data.now) == ("steps/s", (7.0,), unknown.steps_per_s)


def points(*values):
    return [[(float(at), value) for at, value in enumerate(values)]]


@pytest.mark.parametrize(
    ("what", "values", "changes_s", "scale"),
    [
        ("a spike does not set it", [*[100.0] * 30, 5000.0, *[100.0] * 10], [], 120.0),
        ("nor do the first points after a change",
         [*[100.0] * 20, 5000.0, 4000.0, *[100.0] * 8], [20.0], 120.0),
        ("a new level does, however short it has lasted",
         [*[100.0] * 100, *[400.0] * 4], [99.9], 500.0),
        ("and so do points that are all warm-up", [3.0, 7.0], [], 8.0),
        ("without a point there is one too", [], [], 1.0),
    ],
)  # fmt: skip
def test_the_scale_of_rates(what, values, changes_s, scale):
    assert scale_of(points(*values), [*map(change, changes_s)]) == scale, what


ONE_COLUMN = [change(99.9, "early"), change(100.2, "one"), change(100.9, "two"), change(109.9)]
FROZEN = TimeRange(begin_s=95.0, end_s=105.0, columns=10)


@pytest.mark.parametrize(
    ("what", "markers", "time_range", "named"),
    [
        ("of markers in one column the last", ONE_COLUMN, TEN_S, {0: "two", 9: "pipelined=on"}),
        ("none that came after a frozen chart", [change(104.0), change(106.0)], FROZEN,
         {9: "pipelined=on"}),
    ],
)  # fmt: skip
def test_a_chart_names_changes(what, markers, time_range, named):
    assert columns_of(markers, time_range) == named, what


@pytest.mark.parametrize(
    ("label", "room", "shown"),
    [
        ("pipelined=on", 12, "pipelined=on"),
        ("pipelined=on", 11, "on"),
        ("pipelined=on, batch_size=16", 20, "on, 16"),
        ("data=resident", 5, "resi…"),
        ("data=resident", 3, ""),
        ("batch_size=16384", 4, ""),  # never a part of a number
        ("A/B", 3, "A/B"),
        ("restart", 0, ""),
    ],
)
def test_a_label_is_whole_or_its_value_or_a_beginning_but_never_part_of_a_number(
    label, room, shown
):
    assert label_in(label, room) == shown


def block(begin_s, end_s, side):
    return BlockShown(begin_s=begin_s, end_s=end_s, side=side)


def test_a_column_shows_side_bs_share_of_what_was_compared_in_it():
    blocks = [
        block(98.0, 101.0, "a"),
        block(101.0, 102.75, "b"),
        block(102.75, 105.5, "a"),
        block(108.0, None, "b"),
    ]
    shares = {0: 0.0, 1: 1.0, 2: 0.75, 3: 0.0, 4: 0.0, 5: 0.0, 8: 1.0, 9: 1.0}
    assert compared_in(blocks, TEN_S) == pytest.approx(shares)


def test_a_column_in_which_no_step_counts_has_neither_side():
    settling = BlockShown(begin_s=101.0, counts_s=102.0, end_s=103.0, side="b")
    compared = compared_in([settling], TEN_S)
    assert compared == {1: None, 2: 1.0}
    assert [side_of(share) for share in compared.values()] == ["", "b"]


@given(st.integers(1, 400), st.floats(2.0, 600.0), st.floats(0.05, 3.0))
def test_exactly_the_columns_of_a_comparison_are_marked(columns, span_s, block_s):
    time_range = TimeRange(begin_s=700.0 - span_s, end_s=700.0, columns=columns)
    blocks = [
        block(600 + block_s * n, 600 + block_s * (n + 1), "ab"[n % 2])
        for n in range(int(60 / block_s))
    ]
    compared = compared_in(blocks, time_range)
    assert all(0 <= share_b <= 1 for share_b in compared.values())
    last_s = 600 + block_s * len(blocks)
    if span_s < 700 - last_s - 1e-6:
        assert not compared
    else:
        first = time_range.column_of(max(600.0, time_range.begin_s))
        before_s = last_s - 3e-6  # a moment as close to a border belongs to the next column
        assert set(compared) == set(range(first, time_range.column_of(before_s) + 1))


def test_sides_of_short_blocks_are_distinct_once_they_fill_columns():
    blocks = [block(100 + n / 10, 100.1 + n / 10, "ab"[n % 2]) for n in range(99)]
    assert {side_of(share) for share in compared_in(blocks, TEN_S).values()} == {""}
    zoomed = TimeRange(begin_s=104.0, end_s=105.0, columns=30)
    sides = [side_of(share) for _, share in sorted(compared_in(blocks, zoomed).items())]
    assert "".join(sides) == "aaabbb" * 5


def test_the_side_at_a_moment():
    blocks = (
        BlockShown(begin_s=1.0, end_s=2.0, side="a"),
        BlockShown(begin_s=2.0, side="b"),
    )
    assert [side_at(blocks, at_s) for at_s in (0.5, 1.0, 2.0, 99.0)] == ["", "a", "b", "b"]


# ── the widget ──────────────────────────────────────────────────────────────────────────


def seen(snapshot, view=LIVE, size=(60, 8)):
    """The chart's lines; in so few rows it has columns."""
    chart = ThroughputChart(id="throughput")
    chart.show(snapshot, view)
    return painted(chart, size)


LEVELS = run([100.0] * 60 + [200.0] * 60, samples_per_s=201.0, steps_per_s=25.0)
SECONDS = TimeView(span_s=54.0)
"""At 60 columns the plot has 54, of a second each, which end with the run, at 60 s."""
CHANGED = msgspec.structs.replace(LEVELS, markers=(change(30.0),))


def test_at_the_cursor_there_is_a_line_and_the_rule_shows_the_value_there():
    lines = seen(CHANGED, TimeView().at(10.2, 60.0))
    assert lines[0].endswith(" at 0:10 ━ – steps/s ━ 100 ━━")
    assert " f live " in lines[0]
    assert sum("│" in line[6:] for line in lines[1:-1]) >= 5


def test_a_frozen_chart_shows_the_value_at_its_end():
    lines = seen(CHANGED, TimeView().frozen(20.0))
    assert lines[0].endswith(" 100 ━━")
    assert not any("pipelined" in line for line in lines)


def of_blocks(block_s):
    """Ten seconds of blocks in turn, from 20 s on."""
    return msgspec.structs.replace(
        LEVELS,
        blocks=tuple(
            block(20 + block_s * n, 20 + block_s * (n + 1), "ab"[n % 2])
            for n in range(int(10 / block_s))
        ),
    )


def test_blocks_of_b_have_another_hue():
    chart = ThroughputChart(id="throughput")
    chart.show(of_blocks(5.0), SECONDS)
    row = painted_at(chart, Size(60, 8), focused=True)[5]
    inks = [ink for text, ink in row for _ in text]
    assert [inks[6 + column] for column in (48, 15, 20)] == ["past", "a", "b"]


def test_without_a_comparison_in_sight_there_is_no_band():
    assert not any("A/B" in line for line in seen(of_blocks(1.0), TimeView(span_s=15.0)))


def test_a_spike_beyond_the_axis_is_marked():
    for size in ((60, 8), (60, 20)):
        assert seen(run([100.0] * 60 + [9000.0] + [100.0] * 60), size=size)[1][:6] == "  120↑"


ODD = {
    "none": (None,) * 40,
    "odd": (1.0, None, math.nan, math.inf, -math.inf, 1e308, 1e-308, -5.0) * 20,
    "tiny": (1e-6,) * 40,
    "huge": (1e12,) * 40,
    "one": (5.0,),
}


@pytest.mark.parametrize("size", [(2, 2), (20, 5), (41, 12), (200, 60)])
@pytest.mark.parametrize("name", ODD)
def test_any_values_at_any_size_fill_the_panel_exactly(size, name):
    markers = tuple(change(at, "عربي=日本語\x1b[2J") for at in (1.0, 1.1, 5.0, 19.0))
    snapshot = msgspec.structs.replace(run(ODD[name]), markers=markers)
    for view in (TimeView(), TimeView(span_s=15.0).at(3.0, 20.0), TimeView().whole()):
        lines = seen(snapshot, view, size)
        assert [cell_len(line) for line in lines] == [size[0]] * size[1]
        assert "\x1b" not in "".join(lines)


def test_a_high_chart_is_lines_with_its_times_below_in_the_hues_of_its_blocks():
    assert " 0:20 " in "\n".join(seen(CHANGED, size=(120, 30)))
    chart = ThroughputChart(id="throughput")
    chart.show(of_blocks(5.0), SECONDS)
    rows = painted_at(chart, Size(60, 20), focused=True)
    assert {"rate", "a", "b"} <= {ink for row in rows for _, ink in row}


# ── the mouse ───────────────────────────────────────────────────────────────────────────


async def test_a_click_puts_the_cursor_a_drag_chooses_a_range_and_the_wheel_zooms():
    app = Alone(ThroughputChart(id="throughput"))
    async with app.run_test(size=(60, 12)) as pilot:
        app.widget.show(LEVELS, SECONDS)
        drawn = app.widget.render_line(0)
        app.widget.show(LEVELS, SECONDS)
        assert app.widget.render_line(0) is drawn  # equal data is not painted again
        await pilot.click(app.widget, offset=(6 + 24, 4))
        await pilot.click(app.widget, offset=(3, 4))  # beside the plot
        await pilot.mouse_down(app.widget, offset=(6 + 44, 4))
        await pilot.mouse_up(app.widget, offset=(6 + 24, 4))
        wheel = [events.MouseScrollUp, events.MouseScrollDown]
        await mouse(pilot, wheel, app.widget, offset=(20, 4))
        await pilot.pause()
    assert app.asked == [
        "screen.cursor_at(30.5)",
        "screen.between(50.5, 30.5)",
        "screen.range(-1)",
        "screen.range(1)",
    ]
