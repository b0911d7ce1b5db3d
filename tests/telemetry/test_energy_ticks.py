"""The ticks of an energy counter: their period, their moments, and how seldom it is read."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from gpudash.compare.meter import REACH_S
from gpudash.protocol.readings import EnergyTick
from gpudash.telemetry import watched_gpu
from gpudash.telemetry.energy_ticks import MEASURED, TickFinder
from gpudash.telemetry.sampler import Sampler
from tests.telemetry.shim import FIRST, Driver
from tests.telemetry.stream import Stream
from tests.waiting import PATIENCE_S, until

CALL_S = 0.002
POWER_W = 300.0


def ticks_of(
    period_s: float, seconds: float, *, jitter_s: float = 0.0
) -> tuple[list[EnergyTick], int]:
    """Return the ticks found in reads of an ideal counter, and how often it was read."""
    finder, found, now_s, reads = TickFinder(FIRST), list[EnergyTick](), 0.0, 0
    while now_s < seconds:
        count = int((now_s + CALL_S / 2 + jitter_s * (reads % 3 - 1)) / period_s)
        tick = finder.add(now_s, now_s + CALL_S, count * period_s * POWER_W)
        found += [tick] if tick is not None else []
        reads += 1
        now_s = max(now_s + CALL_S, finder.next_s(now_s + CALL_S))
    return found, reads


@pytest.mark.parametrize("period_s", [0.02, 0.1, 0.25])
def test_the_period_is_measured_and_then_the_counter_is_read_twice_or_thrice_a_fifth_of_a_second(
    period_s: float,
):
    (first, early), (last, reads) = ticks_of(period_s, 10.0), ticks_of(period_s, 30.0)
    assert first[MEASURED - 2].period_s is None
    assert first[-1].period_s == pytest.approx(period_s, rel=0.1)
    for tick in first:
        assert abs(tick.at_s - tick.energy_j / POWER_W) <= tick.within_s + CALL_S
        assert tick.within_s < 0.01
    seconds = last[-1].at_s - first[-1].at_s
    assert (reads - early) / seconds < 15
    assert (len(last) - len(first)) / seconds == pytest.approx(1 / max(period_s, 0.2), rel=0.1)
    assert all(b.at_s - a.at_s < REACH_S for a, b in pairwise(last))  # an edge lies between two


def test_a_counter_that_goes_back_is_told_as_it_is():
    """Whoever interpolates sees that it went backwards, and has no figure."""
    finder = TickFinder(FIRST)
    assert finder.add(0.0, 0.001, 500.0) is None
    tick = finder.add(0.01, 0.011, 3.0)
    assert tick.energy_j == 3.0


# ── by the sampler ──────────────────────────────────────────────────────────────────────


@pytest.fixture
def emitted(driver: Driver) -> Iterator[list[object]]:
    samples: list[object] = []
    driver.says("energy.tick_ms 50", f"energy.w {POWER_W}")
    sampler = Sampler(samples.append, energy=True)
    sampler.watch(1, FIRST)
    sampler.start()
    yield samples
    sampler.stop(PATIENCE_S)


def found(samples: list[object]) -> list[EnergyTick]:
    return [one for one in list(samples) if isinstance(one, EnergyTick)]


def test_the_sampler_tells_each_tick_with_the_energy_at_it(emitted: list[object]):
    ticks = until(lambda: ticks if len(ticks := found(emitted)) >= 20 else None)
    powers = [(b.energy_j - a.energy_j) / (b.at_s - a.at_s) for a, b in pairwise(ticks[::10])]
    assert powers == pytest.approx([POWER_W] * len(powers), rel=0.2)
    assert {one.uuid for one in ticks} == {FIRST}


def test_a_counter_that_stands_still_has_no_ticks_and_is_looked_at_again(
    emitted: list[object], driver: Driver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("gpudash.telemetry.energy_ticks.PATIENCE_S", 0.1)
    monkeypatch.setattr(watched_gpu, "REOPEN_S", 0.1)
    monkeypatch.setattr(watched_gpu, "REOPEN_MOST_S", 0.1)
    until(lambda: found(emitted))
    driver.says("energy.tick_ms 0")
    until(lambda: driver.asked("nvmlInitWithFlags") > 3)
    emitted.clear()
    driver.says("energy.tick_ms 50")
    until(lambda: found(emitted))


def test_without_being_asked_the_counter_is_read_as_often_as_other_slow_values(
    stream: Stream, driver: Driver
):
    energy, limit = "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetEnforcedPowerLimit"
    stream.sampler.watch(1, FIRST)
    stream.sampler.start()
    until(lambda: driver.asked(limit) > 2)
    stream.sampler.stop(PATIENCE_S)
    assert not found(stream.samples)
    assert driver.asked(energy) == driver.asked(limit)
