"""The layout of the main screen: its parts cover the terminal and never overlap."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.tui.arrangement import BOTTOM, LEAST, PanelChoice, notices_margin, places

SHOWN = st.builds(
    PanelChoice,
    chosen=st.sampled_from(("levers", "device", "activity", "pane")),
    device=st.booleans(),
    zoomed=st.sampled_from(("", "throughput", "step", "pane")),
    scrubber=st.booleans(),
    status_rows=st.integers(1, 3),
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


@pytest.mark.parametrize("size", [(110, 34), (120, 40), (200, 50), (400, 120)])
def test_a_roomy_terminal_has_a_place_for_every_panel(size):
    assert set(places(*size, PanelChoice())) >= {
        "answer", "throughput", "activity", "step", "levers", "pane",
    }  # fmt: skip


def test_fourteen_levers_have_room_at_120_by_40():
    levers = places(120, 40, PanelChoice())["levers"]
    assert levers.height >= 14 + 2 + 5  # with the frame and an explanation


@pytest.mark.parametrize("chosen", ["levers", "activity", "pane"])
def test_at_80_by_24_the_panel_chosen_last_has_the_place_below_the_charts(chosen):
    regions = places(80, 24, PanelChoice(chosen=chosen))
    assert set(regions) == {
        "header", "answer", "throughput", "step", chosen, "status", "footer",
    }  # fmt: skip
    assert regions[chosen].height == 8
    assert regions[chosen].width == 80


def test_the_device_stands_in_the_levers_place():
    for size in [(120, 40), (80, 24), (160, 24)]:
        levers = places(*size, PanelChoice())["levers"]
        device = places(*size, PanelChoice(device=True))
        assert device["device"] == levers
        assert "levers" not in device


def test_a_zoomed_panel_has_all_the_room_between_the_bars():
    regions = places(120, 40, PanelChoice(zoomed="step"))
    assert set(regions) == {"header", "step", "status", "footer"}
    assert regions["step"].height == 37


@pytest.mark.parametrize("size", [(59, 16), (60, 15), (20, 5), (1, 1)])
def test_below_the_least_size_it_says_so_and_shows_nothing_else(size):
    assert set(places(*size, PanelChoice())) == {"too-small"}


@pytest.mark.parametrize("chosen", ["pane", "levers", "device", "activity"])
@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 30), (120, 40)])
def test_notices_are_above_whatever_is_at_the_bottom(size, chosen):
    shown = PanelChoice(chosen=chosen, device=chosen == "device")
    lowest = max(
        (region for name, region in places(*size, shown).items() if name in BOTTOM),
        key=lambda region: region.bottom,
    )
    assert size[1] - notices_margin(*size, shown) == lowest.y
