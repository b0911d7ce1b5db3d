"""Fixtures for all tests of the screen."""

from collections.abc import AsyncIterator, Iterator

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.message_pump import MessagePump

from tests.tui.driving import RUNNING, Driver, dashboard
from tests.tui.idle import idle, known_handlers, paint_when_looked_at

_parse_rules = Stylesheet._parse_rules
_rules: dict[object, list[RuleSet]] = {}


def _known_rules(self: Stylesheet, *args, **kwargs) -> list[RuleSet]:
    """Parse the styles of hundreds of apps once."""
    key = (frozenset(self._variables.items()), args, frozenset(kwargs.items()))
    if key not in _rules:
        _rules[key] = _parse_rules(self, *args, **kwargs)
    return _rules[key]


@pytest.fixture(autouse=True, scope="package")
def _nothing_waits_for_the_clock() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("textual.pilot.wait_for_idle", idle)
        patch.setattr("textual.app.wait_for_idle", idle)
        patch.setattr("textual.screen.Screen._compositor_refresh", paint_when_looked_at)
        patch.setattr("textual.screen.UPDATE_PERIOD", 0.001)  # what waits for a paint gets it
        patch.setattr(Stylesheet, "_parse_rules", _known_rules)
        patch.setattr(MessagePump, "_get_dispatch_methods", known_handlers)
        yield


@pytest.fixture
async def d(request: pytest.FixtureRequest) -> AsyncIterator[Driver]:
    """The dashboard of a run in full swing, or the one that `showing` says."""
    options = getattr(request.function, "dashboard", {"snapshot": RUNNING})
    async with dashboard(**options) as driver:
        yield driver
