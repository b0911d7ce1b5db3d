"""What all tests of the screen share."""

import pytest

from tests.tui.idle import idle


@pytest.fixture(autouse=True)
def _nothing_waits_for_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("textual.pilot.wait_for_idle", idle)
    monkeypatch.setattr("textual.app.wait_for_idle", idle)
    monkeypatch.setattr("textual.screen.UPDATE_PERIOD", 0.001)  # what waits for a paint gets it
