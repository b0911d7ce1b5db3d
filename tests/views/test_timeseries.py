import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.protocol import HostReading
from gpudash.snapshot import Series
from gpudash.views.timeseries import CAPACITY, TICK_S, Ticks
from tests.scripted_run import BEGAN_S, Trainer, gpu, host, step


def trained(durations_ms, *, began_s=BEGAN_S):
    """Steps back to back from the run's begin; everything is known up to the last."""
    run = Trainer(began_s)
    ticks = Ticks(BEGAN_S)
    ticks.begin(began_s - TICK_S)
    for duration_ms in durations_ms:
        ticks.step(run.step(duration_ms).steps[0])
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


def test_a_step_longer_than_a_tick_draws_no_tooth():
    ticks, _ = trained([3000.0, 3000.0])
    assert ticks.series().of("steps_per_s") == pytest.approx([1 / 3] * 12)
    assert ticks.series().of("step_ms") == pytest.approx([3000.0] * 12)


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=40))
def test_rates_times_the_length_of_a_tick_add_up_to_the_steps(durations_ms):
    ticks, run = trained(durations_ms)
    ticks.cover(run.now_s + TICK_S)
    assert sum(ticks.series().of("steps_per_s")) * TICK_S == pytest.approx(len(durations_ms))


def test_idle_ticks_are_a_measured_zero_without_times():
    ticks, run = trained([50.0] * 10)
    ticks.cover(run.now_s + 1.0)
    assert ticks.series().of("steps_per_s") == pytest.approx((20.0, 0.0, 0.0))
    assert ticks.series().of("step_ms")[1:] == (None, None)


def test_a_tick_is_absent_until_it_is_known_what_was_trained_in_it():
    ticks = Ticks(BEGAN_S)
    ticks.begin(BEGAN_S - TICK_S)
    ticks.step(step(1, BEGAN_S + 0.45))
    ticks.cover(BEGAN_S + 0.49)
    assert ticks.series().at_s == ()
    ticks.cover(BEGAN_S + 0.5)
    assert ticks.series().at_s == (0.5,)


def test_before_a_worker_is_ready_only_samples_are_known():
    ticks = Ticks(BEGAN_S)
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


def test_what_is_read_of_the_training_is_kept_whether_a_chart_has_it_or_not():
    ticks = Ticks(BEGAN_S)
    ticks.read(host(BEGAN_S + 0.1, core_wait_pct=10.0))
    ticks.read(host(BEGAN_S + 0.3, core_wait_pct=20.0))
    ticks.read(HostReading(at_s=BEGAN_S + 0.6, values={"own_rss_mib": 60.0}))
    ticks.cover(BEGAN_S + 1.0)
    assert ticks.series().of("core_wait_pct") == (15.0, None)
    assert "own_rss_mib" not in ticks.series().values


def test_a_tick_in_progress_is_not_shown():
    ticks = Ticks(BEGAN_S)
    ticks.read(gpu(BEGAN_S + 1.6, gpu_util_pct=50.0))
    assert ticks.series() == Series(tick_s=TICK_S)


def test_a_sample_from_before_the_newest_is_still_shown():
    ticks = Ticks(BEGAN_S)
    ticks.read(gpu(BEGAN_S + 2.1, gpu_util_pct=50.0))
    ticks.read(host(BEGAN_S + 0.6, cpu_pct=100.0))
    assert ticks.series().at_s == (1.0, 1.5, 2.0)
    assert ticks.series().of("cpu_pct") == (100.0, None, None)


def test_ticks_that_samples_have_shown_tell_later_that_nothing_was_trained():
    ticks = Ticks(BEGAN_S)
    ticks.begin(BEGAN_S - TICK_S)
    for tick in range(4):
        ticks.read(gpu(BEGAN_S + tick * TICK_S, gpu_util_pct=50.0))
    assert ticks.series().of("steps_per_s") == ()
    ticks.cover(BEGAN_S + 1.0)
    assert ticks.series().of("steps_per_s") == (0.0, 0.0, None)


def test_of_a_step_that_began_before_the_run_only_the_rest_is_shown():
    ticks = Ticks(BEGAN_S)
    ticks.begin(BEGAN_S - TICK_S)
    ticks.step(step(1, BEGAN_S + 1.0, step_ms=4000.0))
    ticks.cover(BEGAN_S + 1.0)
    assert ticks.series().of("steps_per_s") == pytest.approx((0.25, 0.25))


def test_a_step_without_a_duration_counts_once():
    ticks = Ticks(BEGAN_S)
    ticks.begin(BEGAN_S - TICK_S)
    ticks.step(step(1, BEGAN_S + 0.25, step_ms=0.0))
    ticks.cover(BEGAN_S + 1.0)
    assert ticks.series().of("steps_per_s") == (2.0, 0.0)


def test_nan_never_reaches_a_chart():
    ticks = Ticks(BEGAN_S)
    ticks.read(gpu(BEGAN_S + 0.1, gpu_util_pct=float("nan"), power_w=float("inf")))
    ticks.cover(BEGAN_S + 0.5)
    assert ticks.series().at_s == (0.5,)
    assert ticks.series().values.keys() == {"steps_per_s", "samples_per_s"}


def test_the_series_is_the_same_object_until_a_tick_that_is_over_changes():
    ticks, run = trained([50.0] * 10)
    before = ticks.series()
    ticks.step(run.step().steps[0])
    ticks.cover(run.now_s)
    assert ticks.series() is before
    ticks.read(gpu(BEGAN_S + 0.1, gpu_util_pct=50.0))
    assert ticks.series().of("gpu_util_pct") == (50.0,)


def test_only_the_last_ten_minutes_are_kept():
    ticks, run = trained([])
    for _ in range(2 * CAPACITY + 700):
        run.now_s += TICK_S
        ticks.step(step(1, run.now_s, step_ms=TICK_S * 1000))
        ticks.cover(run.now_s)
    series = ticks.series()
    assert len(series.at_s) == CAPACITY
    assert len(ticks._ticks) <= 2 * CAPACITY + 1
    assert series.at_s[-1] == pytest.approx((2 * CAPACITY + 700) * TICK_S)


def test_a_sample_older_than_twice_of_what_is_shown_is_left_out():
    ticks = Ticks(BEGAN_S)
    newest_s = BEGAN_S + 3 * CAPACITY * TICK_S
    for ago in (0, 2 * CAPACITY, 2 * CAPACITY + 1):
        ticks.read(gpu(newest_s - ago * TICK_S))
    assert len(ticks._ticks) == 2


def test_names_are_forgotten_with_their_ticks():
    ticks, run = trained([])
    for number in range(3 * CAPACITY):
        run.now_s += TICK_S
        odd = msgspec.structs.replace(step(1, run.now_s), phases_ms={f"phase {number}": 1.0})
        ticks.step(odd)
        ticks.cover(run.now_s)
        if number % 100 == 0:
            ticks.series()
    assert len(ticks._names) <= 2 * CAPACITY + 10


def test_a_phase_cannot_take_the_place_of_the_steps_own_times():
    ticks, _ = trained([])
    ticks.step(msgspec.structs.replace(step(1, BEGAN_S + 0.1), phases_ms={"step": 7.0}))
    ticks.cover(BEGAN_S + 0.5)
    assert ticks.series().of("step_ms") == pytest.approx([50.0])


def test_a_long_silence_costs_no_more_than_what_is_kept():
    ticks, run = trained([50.0])
    ticks.cover(run.now_s + 1e7)
    assert len(ticks.series().at_s) == CAPACITY
    assert len(ticks._ticks) <= 2 * CAPACITY + 1
