import pytest

from gpudash.protocol.readings import HostReading
from gpudash.ranks.rank import Rank
from gpudash.ranks.recent import (
    NOW_S,
    REPORT_S,
    UNKNOWN,
    Rate,
    RecentReadings,
    RecentSteps,
    now,
)
from tests.scripted_run import Trainer, gpu, host, step


def recent(*progresses):
    steps = RecentSteps()
    for progress in progresses:
        for one in progress.steps:
            steps.add(one)
    return steps


RATES = {
    # lengths in ms of steps one after the other; how long the last is over; steps per second
    "it covers the last two seconds": ([100.0] * 100 + [25.0] * 100, 0.0, 40.0),
    "a step that was finished two seconds ago": ([200.0] * 10 + [100.0] * 20, 0.0, 21 / 2.2),
    "however slow five": ([9e3, 2e3, 4e3, 8e3, 4e3, 2e3], 0.0, 5 / 20),
    "slow steps": ([9000.0] * 2 + [4000.0] * 5, 3.0, 0.25),
    "reports are rare": ([50.0] * 20, REPORT_S, 20.0),
    "a stuck training": ([50.0] * 20, 9.0, 2.0),
    "it falls towards zero": ([50.0] * 20, 99.0, 0.2),
    "no longer than the longest": ([500.0] * 4, 0.5 + REPORT_S, 2.0),
    "longer": ([500.0] * 4, 0.51 + REPORT_S, 4 / 3.01),
    "one slow step": ([4e4], 0.0, 1 / 40),
}


@pytest.fixture
def run():
    return Trainer()


@pytest.mark.parametrize(("lengths", "since_s", "steps_per_s"), RATES.values(), ids=RATES)
def test_the_rate_is_that_of_the_newest_steps(run, lengths, since_s, steps_per_s):
    rate = recent(*(run.step(ms) for ms in lengths)).rate(since_s)
    assert rate.steps_per_s == pytest.approx(steps_per_s)
    assert rate.samples_per_s == pytest.approx(8 * steps_per_s)


def test_the_percentiles_are_those_of_the_same_steps(run):
    steps = [run.step(step_ms) for step_ms in (10.0, 20.0, 30.0, 40.0, 50.0)]
    rate = recent(*steps).rate(0.0)
    assert (rate.step_ms_p50, rate.step_ms_p95) == pytest.approx((30.0, 48.0))
    later = recent(*steps, *run.steps(100, 25.0)).rate(0.0)
    assert (later.step_ms_p50, later.step_ms_p95) == (25.0, 25.0)


def test_a_pause_between_steps_does_not_dilute_the_rate(run):
    first = run.steps(10)
    run.wait(0.5)
    assert recent(*first, *run.steps(10)).rate(0.0).steps_per_s == pytest.approx(20.0)


def test_steps_that_took_no_time_have_no_rate_and_without_a_step_nothing_is_known():
    assert recent(Trainer().step(0.0)).rate(0.0) == Rate(None, None, 0.0, 0.0)
    assert RecentSteps().rate(5.0) is UNKNOWN
    assert RecentSteps().longest_s() == 0.0


def test_no_more_than_8192_steps_are_kept(run):
    first, rest = run.step(1.0), run.steps(8192, 0.1)
    assert recent(first, *rest[:-1]).longest_s() == 0.001
    assert recent(first, *rest).longest_s() == 0.0001


def test_in_the_blocks_of_a_comparison_the_rate_is_of_both_sides():
    steps = RecentSteps()
    for number in range(1, 21):
        steps.add(step(number, 0.1 * number, 100.0, segment=number // 2), in_block=True)
    assert steps.rate(0.0).steps_per_s == pytest.approx(10.0)
    for number in range(21, 26):
        assert steps.rate(0.0).steps_per_s in (None, pytest.approx(10.0))
        steps.add(step(number, 0.05 * number + 1.0, 50.0, segment=99))
    assert steps.rate(0.0).steps_per_s == pytest.approx(20.0)


def test_the_span_of_current_values_is_given_in_words():
    assert [now(steps_per_s) for steps_per_s in (None, 0.0, 2.4, 2.5, 300.0)] == [
        "last 2 s",
        "last 2 s",  # it rests: the last steps are not what is now
        "last 5 steps",
        "last 2 s",
        "last 2 s",
    ]


def test_another_segment_starts_afresh(run):
    steps = recent(*run.steps(20))
    for number in range(21, 26):
        steps.add(step(number, run.now_s + 0.1 * (number - 20), 100.0, segment=1))
        assert (steps.rate(0.0).steps_per_s is None) == (number < 25)  # a few are no measure
    assert steps.rate(0.0).steps_per_s == pytest.approx(10.0)


def whole(*records):
    rank = Rank()
    for record in records:
        rank.fold(record)
    return rank.whole_run


def test_a_whole_run_counts_every_step_after_its_first_one(run):
    first, rest = run.steps(1, 9000.0), run.steps(200, 25.0) + run.steps(100, 100.0)
    assert whole(*first).per_s("steps") is None
    assert whole(*first, *rest).per_s("steps") == pytest.approx(300 / 15.0)


def test_a_pause_does_not_dilute_the_rate_of_a_whole_run(run):
    before = run.steps(11, 50.0)
    run.wait(60.0)
    assert whole(*before, *run.steps(10, 50.0)).per_s("steps") == pytest.approx(20.0)


def test_another_worker_is_another_run(run):
    before = [run.start(), *run.steps(11, 50.0), run.start()]
    assert whole(*before).per_s("steps") is None
    assert whole(*before, *run.steps(3, 100.0)).per_s("steps") == pytest.approx(10)


# ── readings ────────────────────────────────────────────────────────────────────────────


def newest(*found):
    """The current reading after these readings."""
    readings = RecentReadings()
    for reading in found:
        readings.add(reading)
    return readings.now()


def test_readings_are_means_over_the_same_two_seconds_as_the_rate():
    early, late = host(10.0, 900.0), [host(10.0 + NOW_S + 0.2 * n, 100.0 + n) for n in range(3)]
    assert newest(early, *late).number("cpu_pct") == pytest.approx(101.0)
    assert newest(early, *late).at_s == late[-1].at_s


def test_a_value_that_is_not_read_any_more_is_not_shown():
    assert newest() is None
    assert newest(host(1.0, 100.0), HostReading(at_s=1.2)).number("cpu_pct") is None


def test_readings_are_kept_for_two_seconds_and_what_is_no_mean_is_the_newest():
    values = ((0.0, 90.0), (1.0, 10.0), (2.0, 30.0))
    read = [
        gpu(at_s, gpu_util_pct=one, energy_j=one, of_their_own=one, throttle=str(one))
        for at_s, one in values
    ]
    names = ("gpu_util_pct", "energy_j", "of_their_own", "throttle")
    assert [newest(*read).values[name] for name in names] == [20, 30, 20, "30.0"]
