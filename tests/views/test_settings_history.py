import pytest

from gpudash.statistics import WARMUP_STEPS
from gpudash.views.settings_history import MOST_ROWS, RESERVOIR, SettingsHistory
from tests.having import having
from tests.scripted_run import BEGAN_S, SETTINGS, Trainer, gpu, host


class Bench:
    """A table, and a trainer that feeds it."""

    def __init__(self):
        self.table = SettingsHistory()
        self.run = Trainer()
        self.processes = 0
        self.start()

    def start(self, settings=SETTINGS, workload="encdec", warmup_steps=2):
        self.processes += 1
        state = self.run.start(settings, workload, warmup_steps, pid=self.processes)
        self.table.start(state.segment, workload, settings)

    def train(self, count, step_ms=50.0):
        for progress in self.run.steps(count, step_ms):
            self.table.step(progress.steps[0])

    def change(self, warmup_steps=2, **changes):
        state = self.run.change_and({"warmup_steps": warmup_steps}, **changes)
        self.table.change(state.segment, state.settings)

    def pause(self, seconds):
        self.run.pause()
        self.run.wait(seconds)

    def rows(self, *, live=True):
        return self.table.results(live=live)


@pytest.fixture
def bench():
    return Bench()


@pytest.fixture
def trained(bench):
    """A table of twenty steps."""
    bench.train(20)
    return bench


def test_the_first_steps_are_left_out_as_warm_up(bench):
    bench.train(WARMUP_STEPS, 900.0)
    assert bench.rows()[0] == having(steps=0, steps_per_s=None)
    bench.train(40, 50.0)
    (row,) = bench.rows()
    assert row == having(
        number=1,
        steps=40,
        step_ms_p50=50.0,
        steps_per_s=pytest.approx(20.0),
        samples_per_s=pytest.approx(160.0),
    )
    assert row.live


def test_a_change_begins_a_row_named_by_what_differs_from_the_first(trained):
    trained.change(pipelined="on")
    trained.train(20, 40.0)
    trained.change(pipelined="off")
    trained.train(20)
    rows = trained.rows()
    assert [row.configuration for row in rows] == [
        "pipelined=off batch_size=8",
        "pipelined=on",
        "as row 1",
    ]
    assert [row.live for row in rows] == [False, False, True]


def test_a_script_that_was_changed_before_it_was_watched_is_named_by_that(bench):
    bench.table.offered({**bench.run.settings, "pipelined": "on"})
    assert bench.rows()[0].configuration == "pipelined=off"


def test_a_script_started_anew_names_its_first_row_by_the_settings_it_then_offers(bench):
    bench.start()  # torchrun starts all ranks again: the row before has no steps
    assert bench.rows()[0].configuration == "pipelined=off batch_size=8"
    bench.table.offered(bench.run.settings)
    assert bench.rows()[0].configuration == "as the script"


def test_a_row_in_which_nothing_was_measured_vanishes_and_numbers_stay_consecutive(trained):
    trained.change(batch_size="16")
    assert [row.number for row in trained.rows()] == [1, 2]
    trained.change(batch_size="32")
    trained.train(20)
    rows = trained.rows()
    assert [(row.number, row.configuration) for row in rows] == [
        (1, "pipelined=off batch_size=8"),
        (2, "batch_size=32"),
    ]


def test_a_new_row_needs_no_new_warm_up_but_the_rest_of_one(bench):
    bench.train(2)
    bench.table.new_row()
    bench.train(4)
    assert [row.steps for row in bench.rows()] == [1]
    bench.table.new_row()
    bench.train(4)
    assert [row.steps for row in bench.rows()] == [1, 4]
    assert bench.rows()[1].configuration == "as row 1"


def test_after_a_change_as_many_steps_are_left_out_as_the_worker_says(trained):
    trained.change(warmup_steps=17, data="loader")
    trained.train(17, 10.0)
    trained.train(20, 75.0)
    trained.pause(2.0)
    trained.train(17, 10.0)
    trained.train(20, 75.0)
    assert trained.rows()[1].steps_per_s == pytest.approx(1 / 0.075)
    trained.table.new_row()
    trained.pause(2.0)
    trained.train(17, 10.0)
    trained.train(20, 75.0)
    assert [row.steps for row in trained.rows()] == [15, 40, 20]


def test_a_row_has_the_most_memory_that_tensors_took_while_it_trained(bench):
    for peak_mib in (2000.0, 3000.0, 2500.0):
        bench.train(20)
        bench.table.sample(host(bench.run.now_s - 0.1, mem_peak_mib=peak_mib))
    assert bench.rows()[0].values["mem_peak_mib"] == 3000.0


def test_a_utilisation_that_reaches_back_into_other_settings_or_a_pause_does_not_count(bench):
    bench.train(40)
    bench.change(pipelined="on")
    for begin in (bench.change, lambda: bench.pause(2.0)):
        begin()
        bench.train(WARMUP_STEPS + 1, 3.0)
        bench.table.sample(gpu(bench.run.now_s - 0.001, gpu_util_pct=10.0))
        bench.train(40)
        bench.table.sample(gpu(bench.run.now_s - 0.001, gpu_util_pct=90.0))
    assert bench.rows()[-1].values["gpu_util_pct"] == 90.0


def test_percentiles_cover_the_latest_steps_and_rates_cover_all(bench):
    bench.train(WARMUP_STEPS)
    bench.train(100, 900.0)
    bench.train(RESERVOIR, 10.0)
    (row,) = bench.rows()
    assert row == having(
        step_ms_p95=10.0, steps_per_s=pytest.approx((100 + RESERVOIR) / (90.0 + RESERVOIR / 100))
    )


def test_the_table_is_bounded_and_keeps_the_first_row_and_the_numbers(bench):
    bench.train(10)
    for index in range(MOST_ROWS + 20):
        bench.change(batch_size=str(8 + index))
        bench.train(WARMUP_STEPS + 1)
    rows = bench.rows()
    assert len(rows) == MOST_ROWS
    assert rows[0].number == 1
    assert rows[-1].number == MOST_ROWS + 21
    assert [row.number for row in rows[1:]] == list(range(23, MOST_ROWS + 22))
    assert rows[1].configuration == "batch_size=29"  # the oldest but the first were dropped


def test_a_row_that_stands_still_is_the_same_object(trained):
    trained.change(pipelined="on")
    before = trained.rows()[0]
    trained.train(20)
    assert trained.rows()[0] is before
    assert not trained.rows(live=False)[1].live


def test_after_blocks_a_row_goes_on_and_counts_none_of_their_steps(trained):
    for value in ("on", "off", "on"):
        trained.run.change(pipelined=value)  # a block's: the table does not see it
        trained.train(10, 10.0)
        trained.table.sample(gpu(trained.run.now_s - 0.01, gpu_util_pct=1.0))
    trained.table.go_on(trained.run.change(pipelined="off").segment)
    trained.train(WARMUP_STEPS, 900.0)
    trained.train(30)
    trained.table.sample(gpu(trained.run.now_s - 0.01, gpu_util_pct=90.0))
    (row,) = trained.rows()
    assert (row.steps, row.values["gpu_util_pct"], row.live) == (45, 90.0, True)
    assert row.steps_per_s == pytest.approx(20.0)
    trained.change(batch_size="16")
    trained.train(20)
    assert [row.steps for row in trained.rows()] == [45, 15]


def test_before_the_first_worker_there_is_no_row_to_go_on_with():
    table = SettingsHistory()
    table.go_on(3)
    assert table.results(live=True) == ()


def test_the_percentiles_are_those_of_a_rows_own_steps(bench):
    bench.train(WARMUP_STEPS, 900.0)
    for step_ms in (10.0, 20.0, 30.0, 40.0, 50.0):
        bench.train(1, step_ms)
    (row,) = bench.rows()
    assert (row.step_ms_p50, row.step_ms_p95) == pytest.approx((30.0, 48.0))


def test_readings_from_the_begin_of_a_rows_first_step_to_the_end_of_its_last_are_its_own(bench):
    bench.train(WARMUP_STEPS, 125.0)
    began_s = bench.run.now_s
    bench.train(4, 125.0)
    for at_s, percent in [(began_s - 0.01, 90.0), (began_s, 10.0), (bench.run.now_s, 30.0)]:
        bench.table.sample(host(at_s, percent))
    assert bench.rows()[0].values["cpu_pct"] == 20.0


def test_a_reading_of_the_moment_a_step_finishes_is_taken_in_it(bench):
    bench.train(WARMUP_STEPS + 1, 125.0)
    bench.table.sample(host(bench.run.now_s + 0.125, 150.0))
    bench.train(1, 125.0)
    assert bench.rows()[0].values["cpu_pct"] == 150.0


def test_of_the_readings_during_a_long_step_the_last_thousand_are_kept(bench):
    bench.train(WARMUP_STEPS + 1)
    for number in range(1025):
        bench.table.sample(host(bench.run.now_s + 0.001 * (number + 1), 100.0 if number else 900.0))
    bench.train(1, 2000.0)
    assert bench.rows()[0].values["cpu_pct"] == 100.0


# ── joules of a sample ──────────────────────────────────────────────────────────────────

WATTS = 400.0


def metered(bench, seconds, offset_j=0.0):
    """Train for so long, with a reading of a GPU's energy counter each second."""
    for _ in range(round(seconds)):
        now_s = bench.run.now_s
        joules = offset_j + WATTS * (now_s - BEGAN_S)
        bench.table.sample(gpu(now_s, energy_j=joules, energy_at_s=now_s))
        bench.train(20, 50.0)  # 8 samples a step


def test_a_setting_has_its_joules_of_a_sample_with_their_uncertainty(bench):
    bench.train(WARMUP_STEPS + 1)
    metered(bench, 10)
    energy = bench.rows()[0].energy
    assert energy.joules == pytest.approx(WATTS / 160)
    assert energy.joules / 1000 < energy.within_j < energy.joules / 50  # of 9 s, ticks of 0.1 s


def test_no_figure_follows_from_less_than_two_seconds(bench):
    bench.train(WARMUP_STEPS + 1)
    metered(bench, 2)
    assert bench.rows()[0].energy is None
    metered(bench, 2)
    assert bench.rows()[0].energy is not None


def test_each_setting_has_its_own_energy_and_a_pause_is_in_none(bench):
    bench.train(WARMUP_STEPS + 1)
    metered(bench, 5)
    bench.change(batch_size="16")
    bench.train(WARMUP_STEPS + 1)
    metered(bench, 4)
    bench.pause(100.0)
    metered(bench, 4, offset_j=-90 * WATTS)  # it took less in the pause
    first, second = (row.energy.joules for row in bench.rows())
    assert first == pytest.approx(WATTS / 160)
    assert second == pytest.approx(first)


def test_a_driver_that_was_loaded_anew_counts_from_0_and_no_energy_is_lost_or_made_up(bench):
    bench.train(WARMUP_STEPS + 1)
    metered(bench, 4, offset_j=1e6)
    metered(bench, 4)
    assert bench.rows()[0].energy.joules == pytest.approx(WATTS / 160)
