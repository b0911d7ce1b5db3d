"""The layout of the main screen: its parts cover the terminal and never overlap."""

from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.tui.arrangement import LEAST, PanelChoice, notices_margin, places

SHOWN = st.builds(
    PanelChoice,
    chosen=st.sampled_from(("levers", "throughput", "activity", "step", "pane")),
    zoomed=st.sampled_from(("", "throughput", "step", "pane")),
    scrubber=st.booleans(),
    lanes=st.integers(0, 4),
    lever_rows=st.integers(1, 70),
    pane_rows=st.integers(0, 20),
    alone=st.booleans(),
)


@given(width=st.integers(LEAST[0], 400), height=st.integers(LEAST[1], 120), shown=SHOWN)
def test_the_parts_cover_the_whole_terminal_and_never_each_other(width, height, shown):
    regions = places(width, height, shown)
    assert sum(region.area for region in regions.values()) == width * height
    for one, other in combinations(regions.values(), 2):
        assert not one.overlaps(other)
    for region in regions.values():
        assert region.x >= 0
        assert region.y >= 0
        assert region.width > 0
        assert region.height > 0
        assert region.right <= width
        assert region.bottom <= height


@pytest.mark.parametrize("size", [(120, 40), (200, 50), (400, 120)])
def test_a_roomy_terminal_has_a_place_for_every_panel(size):
    assert set(places(*size, PanelChoice())) >= {
        "answer", "throughput", "activity", "step", "levers", "pane",
    }  # fmt: skip


@pytest.mark.parametrize("rows", [16, 42])
def test_any_levers_leave_room_for_charts_and_pane_and_fourteen_have_theirs_beside_them(rows):
    regions = places(120, 40, PanelChoice(lanes=3, lever_rows=rows))
    assert (regions["levers"].height == rows) == (rows == 16)
    assert regions["throughput"].height >= 5
    assert regions["pane"].height >= 4


def test_where_there_is_room_for_one_chart_it_is_the_chosen_one():
    small = PanelChoice(lanes=3, lever_rows=16, pane_rows=10)
    assert "step" not in places(120, 40, small)
    assert "throughput" not in places(120, 40, msgspec.structs.replace(small, chosen="step"))


def test_an_a_b_gets_its_rows_from_the_charts():
    usual, more = (places(120, 40, PanelChoice(pane_rows=rows)) for rows in (0, 12))
    assert more["pane"].height == 12 > usual["pane"].height
    assert more["levers"] == usual["levers"]


def test_while_an_a_b_runs_the_pane_has_the_step_charts_rows_too_and_the_curve_stays():
    usual, running = (
        places(120, 40, PanelChoice(lever_rows=7, alone=one)) for one in (False, True)
    )
    assert running["pane"].height > usual["pane"].height
    assert running["throughput"].height >= 8
    assert running["levers"] == usual["levers"]
    assert "step" not in running


@pytest.mark.parametrize("size", [(120, 40), (120, 34), (170, 60)])
@pytest.mark.parametrize("pane_rows", [0, 10])
def test_the_pane_keeps_its_rows_with_more_lanes(size, pane_rows):
    """So a verdict is shown with the same intervals in a run and in its replay."""
    shown = [PanelChoice(pane_rows=pane_rows, lanes=lanes) for lanes in (1, 2, 3)]
    rows = {places(*size, one)["pane"].height for one in shown}
    assert len(rows) == 1
    assert min(rows) >= pane_rows


BARS = {"header", "status", "footer"}


@pytest.mark.parametrize(
    ("what", "size", "shown", "parts", "rows"),
    [
        *[("at 80×24 readings and pane are below the panel chosen last", (80, 24),
           PanelChoice(chosen=chosen, lever_rows=9), BARS | {"answer", chosen, "activity", "pane"},
           {chosen: 9, "activity": 3}) for chosen in ("levers", "throughput", "step")],
        ("the pane takes the ledger's place if it is chosen", (80, 24),
         PanelChoice(chosen="pane"), BARS | {"answer", "activity", "pane"}, {"pane": 12}),
        *[("in the least terminal the chosen panel is alone below the answer", LEAST,
           PanelChoice(chosen=chosen), BARS | {"answer", chosen}, {})
          for chosen in ("levers", "pane", "step", "activity")],
        ("a zoomed panel has all the room between the bars", (120, 40),
         PanelChoice(zoomed="step"), BARS | {"step"}, {"step": 37}),
        *[("below the least size it says so and shows nothing else", size, PanelChoice(),
           {"too-small"}, {}) for size in [(59, 16), (60, 15), (20, 5), (1, 1)]],
    ],
)  # fmt: skip
def test_where_there_is_no_room_for_all(what, size, shown, parts, rows):
    regions = places(*size, shown)
    assert set(regions) == parts, what
    assert {name: regions[name].height for name in rows} == rows, what


@pytest.mark.parametrize("size", [(80, 24), (120, 30), (120, 40), (200, 50)])
def test_notices_are_above_the_pane(size):
    shown = PanelChoice()
    assert size[1] - notices_margin(*size, shown) == places(*size, shown)["pane"].y
