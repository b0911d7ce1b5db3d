"""Fixtures for all tests of the screen."""

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

from tests.tui.idle import idle, paint_when_idle


@pytest.fixture(autouse=True)
def _nothing_waits_for_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("textual.pilot.wait_for_idle", idle)
    monkeypatch.setattr("textual.app.wait_for_idle", idle)
    monkeypatch.setattr("textual.screen.Screen._compositor_refresh", paint_when_idle)
    monkeypatch.setattr("textual.screen.UPDATE_PERIOD", 0.001)  # what waits for a paint gets it


_parse_rules = Stylesheet._parse_rules
_rules: dict[object, list[RuleSet]] = {}


@pytest.fixture(autouse=True)
def _a_thousand_apps_parse_their_styles_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def known(self: Stylesheet, *args, **kwargs) -> list[RuleSet]:
        key = (frozenset(self._variables.items()), args, frozenset(kwargs.items()))
        if key not in _rules:
            _rules[key] = _parse_rules(self, *args, **kwargs)
        return _rules[key]

    monkeypatch.setattr(Stylesheet, "_parse_rules", known)
