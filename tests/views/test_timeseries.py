from itertools import cycle as cycle_of
from itertools import islice, pairwise
from operator import mul

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as change

from gpudash.protocol.readings import HostReading
from gpudash.protocol.training import Step
from gpudash.snapshot import RecentMeans
from gpudash.views.timeseries import CAPACITY, KEPT, MERGED, MOST_NAMES, TICK_S, Ticks
from tests.scripted_run import BEGAN_S, Trainer, gpu, host, measured, step


@pytest.fixture
def ticks():
    return Ticks(BEGAN_S)


def trained(durations_ms, *, began_s=BEGAN_S, warmup=0):
    """Steps back to back from the run's begin; all are known up to the last."""
    run = Trainer(began_s)
    ticks = Ticks(BEGAN_S)
    ticks.begin(began_s - TICK_S)
    for number, duration_ms in enumerate(durations_ms):
        ticks.step(change(run.step(duration_ms).steps[0], warm=int(number >= warmup)))
    ticks.cover(run.now_s)
    return ticks, run


def test_steady_steps_draw_a_level_line():
    ticks, _ = trained([30.0] * 100)
    series = ticks.series()
    assert series.at_s == (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
    assert series.of("steps_per_s") == pytest.approx([1000 / 30] * 6)
    assert series.of("samples_per_s") == pytest.approx([8000 / 30] * 6)
    assert series.of("step_ms") == pytest.approx([30.0] * 6)
    assert series.of("forward_ms") == pytest.approx([10.0] * 6)
    assert "copy_ms" not in series.values


def test_recent_means_are_over_two_seconds_or_over_the_whole_of_a_younger_run():
    assert trained([10.0] * 1000)[0].recent().steps == pytest.approx(200)
    assert trained([10.0] * 150, warmup=5)[0].recent().steps == pytest.approx(100)
    assert trained([1000.0] * 30)[0].recent().steps == pytest.approx(5)  # of slow ones as many


def test_recent_shares_of_time_are_means_over_the_time_and_not_over_the_steps():
    ticks, run = trained([500.0, *[10.0] * 50] * 10)
    for before_s, percent in ((1.7, 90.0), (1.2, 10.0), (0.7, 90.0), (0.2, 10.0)):
        ticks.read(HostReading(at_s=run.now_s - before_s, values={"compile_pct": percent}))
    assert ticks.recent().values["compile_pct"] == pytest.approx(50.0)


def test_recent_means_are_of_what_no_chart_shows_too():
    ticks, run = trained([10.0] * 200)
    for before_s, percent in ((1.2, 30.0), (0.7, 0.0)):
        ticks.read(HostReading(at_s=run.now_s - before_s, values={"gc_pct": percent}))
    assert ticks.recent().values["gc_pct"] == pytest.approx(15.0)
    assert "gc_pct" not in ticks.series().values


def test_recent_means_leave_out_what_was_before_the_last_break_and_its_warm_up():
    ticks, run = trained([40.0] * 50)
    for number in range(100):
        one = run.step(10.0).steps[0]
        ticks.step(change(one, since_break=number + 1, warm=int(number > 2)))
    assert ticks.recent() == RecentMeans()
    ticks.cover(run.now_s)
    assert ticks.recent().values["step_ms"] == pytest.approx(10.0)
    assert ticks.recent() is ticks.recent()


def test_recent_means_leave_out_steps_that_are_not_warm_and_go_back_beyond_them():
    ticks, run = trained([100.0] * 10)
    for _ in range(4):
        ticks.step(change(run.step(20.0).steps[0], since_break=11, warm=0))
    ticks.cover(run.now_s + TICK_S)
    assert (ticks.recent().steps, ticks.recent().values["step_ms"]) == (
        pytest.approx(10),
        pytest.approx(100.0),
    )


def test_recent_means_go_back_over_a_time_without_steps_and_what_was_read_in_it():
    ticks, run = trained([100.0] * 20)
    for at_s, percent in ((run.now_s - 0.2, 90.0), (run.now_s + 0.7, 10.0)):
        ticks.read(gpu(at_s, gpu_util_pct=percent))
    ticks.cover(run.now_s + 30.0)
    recent = ticks.recent()
    assert (recent.steps, recent.values["gpu_util_pct"]) == (pytest.approx(5), 90.0)


def test_idle_ticks_are_a_measured_zero_without_times():
    ticks, run = trained([50.0] * 10)
    ticks.cover(run.now_s + 1.0)
    assert ticks.series().of("steps_per_s") == pytest.approx((20.0, 0.0, 0.0))
    assert ticks.series().of("step_ms")[1:] == (None, None)


def test_a_tick_is_absent_until_it_is_known_what_was_trained_in_it(ticks):
    ticks.begin(BEGAN_S - TICK_S)
    ticks.step(step(1, BEGAN_S + 0.45))
    ticks.cover(BEGAN_S + 0.49)
    assert ticks.series().at_s == ()
    ticks.cover(BEGAN_S + 0.5)
    assert ticks.series().at_s == (0.5,)


def test_before_a_worker_is_ready_only_samples_are_known(ticks):
    for tick in range(8):
        ticks.read(gpu(BEGAN_S + tick / 4, gpu_util_pct=10.0 * tick))
        ticks.read(host(BEGAN_S + tick / 4, cpu_pct=100.0))
    ticks.begin(BEGAN_S + 0.7)
    ticks.cover(BEGAN_S + 1.5)
    series = ticks.series()
    assert series.of("steps_per_s") == (None, None, 0.0)
    assert series.of("gpu_util_pct") == (5.0, 25.0, 45.0)
    assert "power_w" not in series.values
    assert series.of("cpu_pct") == (100.0, 100.0, 100.0)


def test_the_losses_that_were_read_back_are_a_curve():
    ticks, run = trained([30.0] * 100)
    for before_s, loss in ((1.2, 2.0), (1.1, 4.0), (0.6, 1.0)):
        ticks.loss(run.now_s - before_s, loss)
    assert ticks.series().of("loss")[-3:] == (3.0, 1.0, None)


def told(*events, until_s):
    """What charts show of these steps and readings."""
    ticks = Ticks(BEGAN_S)
    if any(isinstance(one, Step) for one in events):
        ticks.begin(BEGAN_S - TICK_S)
    for one in events:
        take = ticks.step if isinstance(one, Step) else ticks.read
        take(one)
    ticks.cover(BEGAN_S + until_s)
    return ticks.series()


TENTH_S = BEGAN_S + 0.1
ODD = {"gpu_util_pct": float("nan"), "power_w": float("inf")}
UNSEEN = {"sm_occupancy_pct": 24.0, "throttle": "none"}


@pytest.mark.parametrize(
    ("what", "events", "until_s", "shown"),
    [
        ("what is read of the training is kept, whether a chart has it or not",
         [host(TENTH_S, core_wait_pct=10.0), host(BEGAN_S + 0.3, core_wait_pct=20.0),
          HostReading(at_s=BEGAN_S + 0.6, values={"own_rss_mib": 60.0})], 1.0,
         {"core_wait_pct": (15.0, None), "own_rss_mib": ()}),
        ("a sample from before the newest is still shown",
         [gpu(BEGAN_S + 2.1, gpu_util_pct=50.0), host(BEGAN_S + 0.6, cpu_pct=100.0)], 0.0,
         {"cpu_pct": (100.0, None, None)}),
        ("of a step that began before the run only the rest",
         [step(1, BEGAN_S + 1.0, step_ms=4000.0)], 1.0, {"steps_per_s": (0.25, 0.25)}),
        ("a step without a duration counts once",
         [step(1, BEGAN_S + 0.25, step_ms=0.0)], 1.0, {"steps_per_s": (2.0, 0.0)}),
        ("nan never reaches a chart", [gpu(TENTH_S, **ODD)], 0.5, dict.fromkeys(ODD, ())),
        ("a phase cannot take the place of the step's own times",
         [measured(step(1, TENTH_S), step_ms=7.0)], 0.5, {"step_ms": (50.0,)}),
        ("what no panel shows over time is not kept",
         [gpu(TENTH_S, temperature_c=51.0, **UNSEEN), gpu(BEGAN_S + 0.6, temperature_c=51.0)], 0.0,
         {"temperature_c": (51.0,), **dict.fromkeys(UNSEEN, ())}),
    ],
)  # fmt: skip
def test_a_chart_shows(what, events, until_s, shown):
    series = told(*events, until_s=until_s)
    assert {name: series.of(name) for name in shown} == shown, what


def test_ticks_shown_early_by_samples_show_later_that_nothing_was_trained(ticks):
    ticks.begin(BEGAN_S - TICK_S)
    for tick in range(4):
        ticks.read(gpu(BEGAN_S + tick * TICK_S, gpu_util_pct=50.0))
    assert ticks.series().of("steps_per_s") == ()
    ticks.cover(BEGAN_S + 1.0)
    assert ticks.series().of("steps_per_s") == (0.0, 0.0, None)


def test_the_series_is_the_same_object_until_a_tick_that_is_over_changes():
    ticks, run = trained([50.0] * 10)
    before = ticks.series()
    ticks.step(run.step().steps[0])
    ticks.cover(run.now_s)
    assert ticks.series() is before
    ticks.read(gpu(BEGAN_S + 0.1, gpu_util_pct=50.0))
    assert ticks.series().of("gpu_util_pct") == (50.0,)


def train(ticks, count, begin=0):
    """One step a tick, with a reading in it."""
    for tick in range(begin, begin + count):
        end_s = BEGAN_S + (tick + 1) * TICK_S
        ticks.step(step(1, end_s, step_ms=TICK_S * 1000))
        ticks.read(gpu(end_s - 0.1, power_w=float(tick)))
        ticks.cover(end_s)


def lengths(series):
    return [end - begin for begin, end in pairwise((0.0, *series.at_s))]


@pytest.mark.parametrize("count", [CAPACITY, CAPACITY + 1, 3 * CAPACITY + 7, 8 * CAPACITY])
def test_the_whole_run_is_kept_the_last_minutes_in_short_ticks(count):
    ticks, _ = trained([])
    train(ticks, count)
    series = ticks.series()
    assert series.at_s[-1] == count * TICK_S
    assert lengths(series).count(TICK_S) >= KEPT
    assert len(series.at_s) <= MERGED + CAPACITY
    assert sorted(lengths(series), reverse=True) == lengths(series)


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.sampled_from([40, 700, 2500, 9000]), min_size=1, max_size=4),
    st.integers(300, 1500),
)
def test_rates_times_the_length_of_their_ticks_add_up_to_the_steps_of_a_long_run(cycle, steps):
    ticks, run = trained([])
    for duration_ms in islice(cycle_of(cycle), steps):
        ticks.step(run.step(duration_ms).steps[0])
        ticks.cover(run.now_s)
    ticks.cover(run.now_s + TICK_S)
    series = ticks.series()
    assert sum(map(mul, series.of("steps_per_s"), lengths(series))) == pytest.approx(steps)
    assert len(series.at_s) <= MERGED + CAPACITY


def test_a_merged_tick_is_the_mean_of_what_was_measured_in_it():
    ticks, _ = trained([])
    train(ticks, 3 * MERGED)
    series = ticks.series()
    powers = series.of("power_w")
    assert lengths(series)[:2] == [4 * TICK_S] * 2
    assert powers[:2] == (1.5, 5.5)
    assert sum(map(mul, powers, lengths(series))) == pytest.approx(TICK_S * sum(range(3 * MERGED)))


def test_what_was_not_measured_long_ago_is_not_measured_in_a_merged_tick():
    ticks, _ = trained([])
    train(ticks, 100)
    train(ticks, 3 * CAPACITY, begin=200)
    rates = ticks.series().of("power_w")
    assert None in rates[:100]
    assert all(rate is not None for rate in rates[100:])


def test_a_reading_from_before_the_short_ticks_is_left_out():
    ticks, _ = trained([])
    train(ticks, 2 * CAPACITY)
    before = ticks.series()
    ticks.read(gpu(BEGAN_S + 1.0, power_w=1e6))
    assert ticks.series() is before


def test_names_are_forgotten_with_their_ticks():
    ticks, run = trained([])
    for number in range(3 * CAPACITY):
        run.now_s += TICK_S
        ticks.step(measured(step(1, run.now_s), **{f"phase {number}_ms": 1.0}))
        ticks.cover(run.now_s)
        if number % 100 == 0:
            ticks.series()
    assert len(ticks.series().values) <= CAPACITY + 2 * MOST_NAMES


def test_a_long_silence_costs_no_more_than_what_is_kept():
    ticks, run = trained([50.0])
    ticks.cover(run.now_s + 1e7)
    assert len(ticks.series().at_s) <= MERGED + CAPACITY
    assert ticks.series().of("steps_per_s")[-KEPT:] == (0.0,) * KEPT
