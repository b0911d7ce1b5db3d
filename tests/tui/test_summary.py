"""The blocks of a profile's summary, side by side."""

import pytest
from rich.cells import cell_len

from gpudash.trace.text import Figure, Section
from gpudash.tui.widgets.summary import ALL, summary_rows
from tests.tui.driving import text_of

STEP = Section(
    "one step",
    (
        Figure(what="waits for data", value="7.00 ms", share="70 %", ms=7.0, hue="data"),
        Figure(what="backward", value="3.00 ms", share="30 %", ms=3.0, hue="backward"),
        Figure(what="step", value="10.0 ms", share="100 %"),
    ),
    full_ms=10.0,
)
KERNELS = Section(
    "kernels",
    tuple(
        Figure(what=f"kernel {n}", value=f"{n}.00 ms", more=f"{n} times", ms=float(n), hue="kernel")
        for n in range(9, 0, -1)
    ),
    is_list=True,
)
SAID = Section(
    "not in the trace", (Figure(what="what loader workers do: they are other processes"),)
)
WIDE = Section("核函数", (Figure(what="核函数" * 30, value="12,345 ms", ms=1.0, more="核 " * 50),))


def lines(blocks, width, height=ALL):
    return [text_of(row).rstrip() for row in summary_rows(blocks, width, height)]


def test_in_a_narrow_terminal_blocks_stand_below_each_other():
    assert lines([STEP, SAID], 50) == [
        " ─ one step ──────────────────────────────────────",
        "   waits for data  7.00 ms  70 %  ···········",
        "   backward        3.00 ms  30 %  ████▊",
        "   step            10.0 ms 100 %",
        " ─ not in the trace ──────────────────────────────",
        "   what loader workers do: they are other",
        "   processes",
    ]


def test_a_wider_one_has_columns_and_a_list_takes_the_rows_that_are_left():
    assert lines([STEP, KERNELS], 80, 8) == [
        " ─ one step ──────────────────────────── ─ kernels ─────────────────────────────",
        "   waits for data  7.00 ms  70 %  ····     kernel 9  9.00 ms  ██████████████████",
        "   backward        3.00 ms  30 %  █▊       kernel 8  8.00 ms  ████████████████",
        "   step            10.0 ms 100 %           kernel 7  7.00 ms  ██████████████",
        "                                           kernel 6  6.00 ms  ████████████",
        "                                           kernel 5  5.00 ms  ██████████",
        "                                           kernel 4  4.00 ms  ████████",
        "                                           3 others  6.00 ms",
    ]


def test_what_does_not_fit_is_left_out_beginning_with_the_last():
    shown = lines([STEP, KERNELS, SAID], 80, 4)
    assert "one step" in shown[0]
    assert len(shown) == 4
    assert "not in the trace" not in "\n".join(shown)


def test_what_stands_behind_a_bar_is_shown_where_there_is_room():
    assert "9 times" not in lines([KERNELS], 60)[1]
    assert lines([KERNELS], 75)[1].endswith("  9 times")


@pytest.mark.parametrize("width", [20, 39, 76, 119, 240, 400])
@pytest.mark.parametrize("height", [0, 1, 3, 7, 20, ALL])
def test_no_row_is_wider_than_its_place(width, height):
    blocks = [STEP, WIDE, KERNELS, SAID, STEP, WIDE]
    assert all(cell_len(line) <= width for line in lines(blocks, width, height))
