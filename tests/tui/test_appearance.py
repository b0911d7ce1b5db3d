"""The dashboard's configuration overrides saved preferences, and does not change them."""

import pytest

from gpudash.tui import preferences
from gpudash.tui.preferences import Appearance, Preferences
from tests.tui.driving import showing

REMEMBERED = Preferences(theme="gruvbox", pane="ab")


@pytest.fixture
def remembered(monkeypatch):
    monkeypatch.setattr(preferences, "load", lambda: REMEMBERED)


@showing(None, look=Appearance(theme="nord", pane="log"))
async def test_a_configured_theme_and_tab_come_before_those_remembered_and_do_not_replace_them(
    remembered,
    d,
):
    assert d.app.theme == "nord"
    assert d.app.main_screen.pane.tab == "log"
    assert d.app.remembered() == REMEMBERED
    d.app.theme = "monokai"
    d.app.action_pane("history")
    assert d.app.remembered() == Preferences(theme="monokai", pane="history")


@showing(None)
async def test_the_timeline_is_not_remembered_for_a_run_that_has_none(remembered, d):
    d.app.action_pane("profile")
    assert d.app.main_screen.pane.tab == "profile"
    assert d.app.remembered() == REMEMBERED


@showing(None)
async def test_without_a_configuration_it_is_as_it_was_left(remembered, d):
    assert (d.app.theme, d.app.main_screen.pane.tab) == ("gruvbox", "ab")
