"""Lines drawn by plotext: in the room they are given, in our inks, whatever was measured."""

from math import inf, nan

import pytest

from gpudash.present.axes import TimeRange, bins_of, cut
from gpudash.present.curves import LEAST_ROWS, curves, in_stretches, line_of

TIMES = tuple(0.5 * number for number in range(1, 121))


def range_of(columns):
    return TimeRange(begin_s=0.0, end_s=60.0, columns=columns)


def drawn(values, columns=60, rows=LEAST_ROWS, gutter=6, marks=()):
    time_range = range_of(columns)
    runs = cut(values, bins_of(TIMES, time_range), time_range, TIMES)
    return curves((line_of("rate", runs),), 100.0, time_range, rows, gutter, marks)


def texts(rows):
    return ["".join(text for text, _ in row) for row in rows]


@pytest.mark.parametrize(
    "values",
    [
        [],
        [50.0],
        [None] * 120,
        [nan, inf, -inf, None] * 30,
        [50.0, nan] * 60,
        [-1e300, 1e300] * 60,
        [1e-300] * 120,
    ],
    ids=["no", "one", "none", "no-finite", "nan-between", "huge", "tiny"],
)
@pytest.mark.parametrize(("columns", "rows", "gutter"), [(60, 8, 6), (1, 8, 0), (3, 30, 6)])
def test_whatever_was_measured_it_keeps_to_its_room(values, columns, rows, gutter):
    values = values + [None] * (120 - len(values))
    found = texts(drawn(values, columns, rows, gutter))
    assert len(found) == rows
    assert all(len(row) <= columns + gutter for row in found)


def test_the_axes_name_values_and_moments_and_nothing_lies_above_the_top():
    *plot, line, moments = texts(drawn([50.0] * 60 + [1e6] * 60))
    assert [row[:6].strip() for row in plot if row[5] in "┤↑"] == ["100↑", "50┤", "0┤"]
    assert line.strip().startswith("└")
    assert {"0:10", "0:20", "0:30"} <= set(moments.split())
    assert any("⠉" in row[36:] or "⠒" in row[36:] for row in plot[:1])


def test_marks_and_lines_have_their_inks():
    rows = drawn([50.0] * 120, marks=((30.0, "border"), (45.0, "strong")))
    inks = {ink for row in rows for text, ink in row if text.strip()}
    assert inks == {"rate", "border", "strong", "faint"}


def test_where_nothing_was_measured_the_line_is_broken():
    found = texts(drawn([50.0] * 40 + [None] * 40 + [50.0] * 40, gutter=0))
    row = next(row for row in found if row.strip() and "└" not in row)
    assert row[:18].strip()
    assert row[44:].strip()
    assert not row[22:38].strip()


def test_stretches_have_the_ink_of_their_columns_and_no_line_joins_two_of_them():
    time_range = range_of(6)
    run = [(time_range.middle_of(column), float(column)) for column in range(6)]
    found = in_stretches([run], ["a", "a", "b", "b", "b", "a"], time_range)
    columns = {
        line.ink: [{time_range.column_of(at_s) for at_s, _ in stretch} for stretch in line.runs]
        for line in found
    }
    assert columns == {"a": [{0, 1}, {5}], "b": [{2, 3, 4}]}
    assert {(time_range.column_of(at_s), y) for line in found for run in line.runs
            for at_s, y in run} == {(column, float(column)) for column in range(6)}  # fmt: skip
