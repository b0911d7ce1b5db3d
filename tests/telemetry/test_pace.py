"""The period of the sampler's threads: no drift, and no catching up after a delay."""

import pytest

from gpudash.telemetry.watched_gpu import ticks


class FakeTime:
    """A clock and an event in one: waiting passes the time at once."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, timeout_s: float) -> bool:
        self.now_s += timeout_s
        return False

    def is_set(self) -> bool:
        return False


def paced(works_s: list[float], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the moments of ticks with a period of 1 s and this much work after each."""
    clock = FakeTime()
    monkeypatch.setattr("gpudash.telemetry.watched_gpu.time", clock)
    moments = []
    for _, work_s in zip(ticks(1.0, clock), works_s, strict=False):  # type: ignore[arg-type]  # the double
        moments.append(clock.now_s)
        clock.now_s += work_s
    return moments


def test_work_between_ticks_does_not_make_the_period_drift(monkeypatch: pytest.MonkeyPatch):
    assert paced([0.0, 0.25, 0.75, 0.5, 0.0], monkeypatch) == [0, 1, 2, 3, 4]


def test_missed_ticks_are_skipped_and_never_made_up_for(monkeypatch: pytest.MonkeyPatch):
    assert paced([0.0, 3.5, 0.0, 0.0], monkeypatch) == [0, 1, 5, 6]
