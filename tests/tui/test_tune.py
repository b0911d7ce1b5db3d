"""The tune on the dashboard: its key, its course in the A/B's tab, and its end."""

from msgspec.structs import replace as changed

from gpudash.compare.tune.tuning import Tuning
from gpudash.tui.screens.dialog import AskKey
from gpudash.tui.widgets.comparison import comparison_rows
from tests.tui.comparisons import compared, text_of
from tests.tui.driving import showing
from tests.tui.fake_engine import training

BEST = {"channels_last": "on", "precision": "bf16"}
START = {"channels_last": "off", "precision": "tf32"}
RUNNING = compared(
    0, lever="tune", a="start", b="best", doing="trying compile off or on", best=BEST, start=START
)
VERDICT = "channels_last=on, precision=bf16 is 41.0 % faster [40.1, 42.0], 7 pairs, no control yet"
OVER = changed(RUNNING, verdict=VERDICT, change=0.41, low=0.401, high=0.42)


def tuned(shown):
    return changed(training(), comparison=shown)


async def test_capital_t_asks_about_other_numbers_and_tunes_with_joules_where_an_ab_has_them(d):
    await d.press("T", "escape")
    assert d.engine.calls_of("conduct") == []
    for key, tried in (("n", False), ("y", True)):
        d.engine.meters = tried
        await d.press("T")
        assert isinstance(d.app.screen, AskKey)
        await d.press(key)
        (tuning,) = d.engine.calls_of("conduct")[-1]
        assert isinstance(tuning, Tuning)
        assert tuning.energy is tried
        names = [one.name for one in tuning.tunables]
        assert ("precision" in names) is tried
        assert "channels_last" in names
        assert "batch_size" not in names
        assert d.app.main_screen.pane.tab == "ab"
        await d.show(training())  # it is over


@showing(tuned(RUNNING), notifications=True)
async def test_a_ends_a_running_tune_and_keys_of_its_tab_say_what_follows(d):
    assert "a tune is running" in d.text()
    await d.press("T")
    assert d.engine.calls_of("conduct") == []  # the first one runs
    await d.press("a")
    assert d.engine.calls_of("end_comparison") == [()]
    assert "the tune ends after this step" in d.notices()
    await d.show(tuned(OVER))
    d.app.clear_notifications()
    await d.is_refused("5", "m", why="only an A/B goes on; T tunes again")
    await d.press("y")
    assert "\ngpudash tune encdec" in d.app.clipboard
    await d.press("enter")
    assert d.engine.calls_of("change") == [({"channels_last": "on"},)]  # the rest is set


def test_the_tab_says_what_is_tried_and_the_best_so_far():
    rows = text_of(comparison_rows(RUNNING, 80, 6))
    assert [row.strip() for row in rows] == [
        "trying compile off or on",
        "best so far: channels_last=on, precision=bf16",
    ]
    rows = " ".join(" ".join(text_of(comparison_rows(OVER, 80, 6))).split())
    assert VERDICT in rows
