"""The tune on the dashboard: its key, its course in the A/B's tab, and its end."""

import msgspec
import pytest

from gpudash.compare.tune.tuning import Tuning
from gpudash.tui.screens.dialog import AskKey
from gpudash.tui.widgets.comparison import comparison_rows
from tests.tui.comparisons import compared, text_of
from tests.tui.driving import dashboard
from tests.tui.fake_engine import training

changed = msgspec.structs.replace
BEST = {"channels_last": "on", "precision": "bf16"}
START = {"channels_last": "off", "precision": "tf32"}
RUNNING = compared(
    0, lever="tune", a="start", b="best", doing="trying compile off or on", best=BEST, start=START
)
VERDICT = "channels_last=on, precision=bf16 is 41.0 % faster [40.1, 42.0], 7 pairs, no control yet"
OVER = changed(RUNNING, verdict=VERDICT, change=0.41, low=0.401, high=0.42)


def tuned(shown):
    return changed(training(), comparison=shown)


async def test_capital_t_asks_about_other_numbers_and_tunes():
    for key, tried in (("n", False), ("y", True)):
        async with dashboard(snapshot=training()) as d:
            await d.press("T")
            assert isinstance(d.app.screen, AskKey)
            await d.press(key)
            ((tuning,),) = d.engine.calls_of("conduct")
            assert isinstance(tuning, Tuning)
            names = [one.name for one in tuning.tunables]
            assert ("precision" in names) is tried
            assert "channels_last" in names
            assert "batch_size" not in names
            assert d.app.main_screen.pane.tab == "ab"


@pytest.mark.parametrize("meters", [False, True])
async def test_a_tune_asks_for_joules_where_an_ab_does(meters):
    async with dashboard(snapshot=training()) as d:
        d.engine.meters = meters
        await d.press("T", "n")
        ((tuning,),) = d.engine.calls_of("conduct")
        assert tuning.energy is meters


async def test_escape_tunes_nothing():
    async with dashboard(snapshot=training()) as d:
        await d.press("T", "escape")
        assert d.engine.calls_of("conduct") == []


async def test_a_ends_a_running_tune():
    async with dashboard(snapshot=tuned(RUNNING), notifications=True) as d:
        await d.press("T")
        assert d.engine.calls_of("conduct") == []  # the first one runs
        await d.press("a")
        assert d.engine.calls_of("end_comparison") == [()]
        assert "the tune ends after this step" in d.notices()


async def test_enter_sets_the_best():
    async with dashboard(snapshot=tuned(OVER)) as d:
        d.app.main_screen.open_tab("ab")
        await d.press("5", "enter")
        assert d.engine.calls_of("change") == [(BEST,)]


async def test_more_pairs_are_of_an_ab():
    async with dashboard(snapshot=tuned(OVER), notifications=True) as d:
        d.app.main_screen.open_tab("ab")
        await d.press("5", "m")
        assert d.notices() == ["only an A/B goes on; T tunes again"]


def test_the_tab_says_what_is_tried_and_the_best_so_far():
    rows = text_of(comparison_rows(RUNNING, 80, 6))
    assert [row.strip() for row in rows] == [
        "trying compile off or on",
        "best so far: channels_last=on, precision=bf16",
    ]
    rows = " ".join(" ".join(text_of(comparison_rows(OVER, 80, 6))).split())
    assert VERDICT in rows


async def test_the_command_of_a_tune_is_copied():
    async with dashboard(snapshot=tuned(OVER), notifications=True) as d:
        await d.press("5", "right", "y")
        assert "\ngpudash tune encdec" in d.app.clipboard
