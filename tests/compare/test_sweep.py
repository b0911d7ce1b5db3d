from collections import Counter

import msgspec
import pytest

from gpudash.compare.paired_t import estimate
from gpudash.compare.sweep.grid import BlockRow, Grid, Sweep, whole_rounds
from gpudash.compare.sweep.table import cell
from gpudash.protocol.commands import Change
from tests.having import having
from tests.scripted_run import host
from tests.scripted_worker import Conducted, Worker

GRID = Grid(
    rows=({"batch_size": "8"}, {"batch_size": "16"}, {"batch_size": "4096"}),
    columns=({"pipelined": "off"}, {"pipelined": "on"}),
    rounds=3,
    min_steps=3,
    min_s=0.0,
)
BIG = (4, 5)
"""The cells of the last row."""
BASE = {"pipelined": "off", "batch_size": "8", "num_workers": "2"}


class File:
    """Keeps the rows that a sweep gives."""

    skipped_samples = None

    def __init__(self):
        self.rows = []

    def started_on(self, state):
        pass

    def append(self, row):
        self.rows.append(row)

    def note_skipped(self, samples):
        pass


class Swept(Conducted):
    """A sweep on a worker, and the rows that it gave."""

    def __init__(self, grid, known, worker, run, delay):
        self.file = File()
        super().__init__(Sweep(grid, known, self.file), worker, run, delay)

    @property
    def sweep(self):
        return self.experiment

    @property
    def rows(self):
        return self.file.rows


def step_ms(settings):
    """50 ms for 8 samples; pipelined=on is a quarter faster, like larger batches per sample."""
    samples = int(settings["batch_size"])
    return 50.0 * (samples / 8) ** 0.5 / (1.25 if settings["pipelined"] == "on" else 1.0)


def swept(grid=GRID, known=(), *, run=0, delay=0, **worker):
    worker = Worker(**{"step_ms": step_ms, **worker})
    return Swept(grid, known, worker, run, delay)


def too_big(settings):
    return settings["batch_size"] == "4096"


def visited(rows):
    return [(row.round, row.cell) for row in rows]


# ── the grid ────────────────────────────────────────────────────────────────────────────


def test_every_round_visits_each_cell_once_in_another_order():
    rows = swept().run().rows
    rounds = [[row.cell for row in rows if row.round == turn] for turn in range(3)]
    assert [sorted(cells) for cells in rounds] == [list(range(6))] * 3
    assert len({tuple(cells) for cells in rounds}) > 1
    assert [row.round for row in rows] == sorted(row.round for row in rows)


@pytest.mark.parametrize("behind", [0, 3, 9])
def test_every_block_is_measured_under_its_own_settings(behind):
    done = swept(run=40, behind=behind).run()
    assert done.worker.began == list(range(18))
    assert done.sweep.failure is None
    for row in done.rows:
        settings = BASE | GRID.changes(row.cell)
        assert row.busy_s / row.steps == pytest.approx(step_ms(settings) / 1e3)
        assert row == having(samples=row.steps * int(settings["batch_size"]), host_ms=2.0)
    assert done.worker.settings == BASE
    assert done.commands == []


# ── the table ───────────────────────────────────────────────────────────────────────────


def test_each_variant_is_compared_with_the_first_of_its_row_round_by_round():
    results = swept().run().sweep.results()
    assert [cell.settings for row in results for cell in row] == [*map(GRID.changes, range(6))]
    for row, samples in zip(results, (8, 16, 4096), strict=True):
        first, second = row
        one_ms = step_ms(BASE | {"batch_size": str(samples)})
        assert first == having(
            steps_per_s=pytest.approx(1e3 / one_ms),
            samples_per_s=pytest.approx(samples * 1e3 / one_ms),
            change=None,
        )
        assert second == having(change=pytest.approx(0.25), low=pytest.approx(0.25), host_ms=2.0)


def known_row(turn, cell, cost_ms, **values):
    return BlockRow(round=turn, cell=cell, steps=10, samples=80, busy_s=cost_ms * 0.08, **values)


def test_the_interval_is_the_paired_one_over_the_rounds_that_both_have():
    rows = [known_row(0, 0, 1.0), known_row(0, 1, 0.5), known_row(1, 0, 4.0)]
    result = Sweep(GRID, rows).results()[0][1]
    assert (result.change, result.low, result.high) == (pytest.approx(1.0), None, None)
    rows += [known_row(1, 1, 0.25), known_row(2, 1, 9.0)]
    result, both = Sweep(GRID, rows).results()[0][1], estimate([(1.0, 0.5), (4.0, 0.25)])
    assert (result.change, result.low, result.high) == (both.change, both.low, both.high)


def test_rates_differ_by_the_change_that_stands_beside_them():
    """Where the machine's pace varies, means of all steps would not, nor those of other rounds."""
    costs = ((0, 0, 1.0), (0, 1, 0.9), (1, 0, 9.0), (1, 1, 2.0), (2, 1, 40.0), (2, 0, 30.0))
    begun = known_row(3, 1, 500.0)  # the sweep was interrupted in this round
    first, second = Sweep(GRID, [*(known_row(*one) for one in costs), begun]).results()[0]
    assert second.change == pytest.approx((270 / 72) ** (1 / 3) - 1)
    for name in ("steps_per_s", "samples_per_s"):
        rates = [getattr(one, name) for one in (first, second)]
        assert rates[1] / rates[0] - 1 == pytest.approx(second.change)
    assert cell(first, "samples/s") == "154.7"
    assert cell(second, "samples/s").startswith("240.4, +55.4 % [")


def test_means_leave_out_what_was_not_measured():
    rows = [
        known_row(0, 0, 1.0, gpu_util_pct=80.0, cpu_pct=100.0, host_ms=1.0),
        known_row(1, 0, 1.0, core_wait_pct=40.0, cpu_pct=200.0, host_ms=3.0),
    ]
    result = Sweep(GRID, rows).results()[0][0]
    assert (result.gpu_util_pct, result.cpu_pct) == (80.0, 150.0)
    assert result.host_ms == pytest.approx(3**0.5)  # a part of the step, averaged as its rate is
    assert result.core_wait_pct == 40.0


def test_a_block_without_a_measured_time_is_not_compared():
    rows = [known_row(turn, cell, 1.0) for turn in range(2) for cell in range(2)]
    rows[1] = known_row(0, 1, 0.0)
    result = Sweep(GRID, rows).results()[0][1]
    assert (result.change, result.low) == (pytest.approx(0.0), None)  # of a single round
    assert result.steps_per_s == pytest.approx(10 / 0.08)


def test_a_setting_that_had_to_wait_for_a_core_says_so():
    """Other jobs ran while this setting was measured, and not with the others."""
    done = swept(msgspec.structs.replace(GRID, rounds=1), step_ms=lambda settings: 500.0)
    while not done.sweep.done:
        done.turn()
        crowded = done.worker.settings["batch_size"] == "16"
        done.tell(host(done.worker.now_s, core_wait_pct=48.0 if crowded else 2.0))
    quiet, waiting, _ = done.sweep.results()
    assert all("waited for a core 48 %" in cell(result) for result in waiting)
    assert not any("waited" in cell(result) for result in quiet)


# ── what cannot be run ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("delay", [0, 1, 5, 50])
@pytest.mark.parametrize("behind", [0, 3])
def test_a_cell_out_of_memory_is_left_out_from_then_on_and_the_sweep_goes_on(behind, delay):
    done = swept(too_big=too_big, behind=behind, delay=delay).run()
    sweep, rows = done.sweep, done.rows
    assert sweep.failure is None
    assert done.worker.settings == BASE
    failures = [row for row in rows if row.failure]
    assert sorted(row.cell for row in failures) == [*BIG]  # once each, however late the command
    assert all("out of memory" in row.failure for row in failures)
    assert Counter(row.cell for row in rows if not row.failure) == dict.fromkeys(range(4), 3)
    assert sweep.blocks_done == sweep.blocks_planned
    assert len(done.commands) == 2
    if not delay:
        assert len(done.worker.began) == 4 * 3 + 2
    results = sweep.results()
    assert all("out of memory" in cell.failure for cell in results[2])
    assert results[1][1].change == pytest.approx(0.25)


def test_a_command_names_what_is_still_missing_under_the_same_numbers():
    done = swept(too_big=too_big)
    planned = {block.number: block for block in Sweep(GRID).begin(Worker().start(), 0)}
    done.run()
    for command in done.commands:
        assert all(planned[block.number] == block for block in command)
        numbers = [block.number for block in command]
        assert numbers == sorted(numbers)
    left = {tuple(sorted(block.changes.items())) for block in done.commands[-1]}
    assert not left & {tuple(sorted(GRID.changes(cell).items())) for cell in BIG}


def test_impossible_settings_are_left_out_with_their_reason():
    done = swept(refuses=lambda s: "no streams" if s["pipelined"] == "on" else None).run()
    sweep = done.sweep
    assert {cell: row.failure for cell, row in sweep.failures.items()} == dict.fromkeys(
        (1, 3, 5), "no streams"
    )
    assert sweep.failure is None
    assert Counter(row.cell for row in done.rows if not row.failure) == {
        0: 3,
        2: 3,
        4: 3,
    }


def test_a_sweep_is_refused_if_no_cell_is_possible_whatever_the_memory():
    never = swept(refuses=lambda s: f"no {s['pipelined']}").run()
    assert sorted(never.sweep.refusals) == ["no off", "no on"]
    assert all(row.refused for row in never.rows)
    elsewhere = swept(too_big=lambda s: True).run()  # it may fit another device
    assert elsewhere.sweep.refusals == []
    assert not any(row.refused for row in elsewhere.rows)
    half = swept(refuses=lambda s: "no" if s["pipelined"] == "on" else None).run()
    assert half.sweep.refusals == []


# ── ended early, and resumed ────────────────────────────────────────────────────────────


def test_the_end_of_the_training_keeps_measured_blocks():
    done = swept()
    while len(done.rows) < 7:
        done.turn()
    done.worker.finish()
    for record in done.worker.take():
        done.tell(record)
    assert done.sweep.done
    assert done.sweep.failure == "the training ended"
    assert done.sweep.blocks_done >= 7


def test_the_end_of_the_training_right_after_the_last_block_is_no_failure():
    done = swept(msgspec.structs.replace(GRID, rounds=1))
    done.turn()
    while done.worker.blocks.running:
        done.turn()
    done.worker.finish()
    for record in done.worker.take():
        done.tell(record)
    assert done.sweep.failure is None


@pytest.mark.parametrize("turns", range(20, 32, 4))
def test_another_change_ends_it_and_the_block_it_cut_off_is_not_kept(turns):
    done = swept()
    done.turn(turns)
    done.worker.obey(Change(id=9, settings={"num_workers": "4"}))
    done.run()
    sweep, rows = done.sweep, done.rows
    assert sweep == having(failure="another change ended it", failures={})
    assert all(row.steps >= GRID.min_steps for row in rows)
    assert sweep.blocks_done == len(rows) < 18


def test_a_resumed_sweep_keeps_whole_rounds():
    rows = [known_row(turn, cell, 1.0) for turn in range(3) for cell in range(6)]
    assert whole_rounds(GRID, rows) == rows
    assert whole_rounds(GRID, rows[:-1]) == rows[:12]
    assert whole_rounds(GRID, rows[:5]) == []


def test_a_round_is_complete_without_cells_that_failed_by_then():
    failure = BlockRow(round=1, cell=5, failure="out of memory")
    first = [known_row(0, cell, 1.0) for cell in range(6)]
    others = [known_row(turn, cell, 1.0) for turn in (1, 2) for cell in range(5)]
    assert whole_rounds(GRID, [*first, failure, *others]) == [*first, failure, *others]
    assert whole_rounds(GRID, [*first[:5], failure, *others]) == [failure, *others]
    assert whole_rounds(GRID, [*first, failure, *others[:4]]) == [*first, failure]


def test_a_lever_is_varied_where_every_cell_sets_it():
    assert GRID.varied == {"batch_size", "pipelined"}
    assert msgspec.structs.replace(
        GRID, rows=({},), columns=({"loss": "a"}, {"data": "cached"})
    ) == having(varied=set())


def test_a_sweep_resumed_runs_only_what_is_missing():
    first = swept()
    while len(first.rows) < 8:
        first.turn()
    known = whole_rounds(GRID, first.rows)
    rest = swept(known=known).run()
    assert rest.sweep.failure is None
    both = visited(known) + visited(rest.rows)
    assert sorted(both) == [(turn, cell) for turn in range(3) for cell in range(6)]
    # in the very order of a sweep that was not interrupted
    assert both == visited(swept().run().rows)
    assert rest.worker.began == list(range(12))


def test_a_sweep_with_nothing_missing_is_done_at_once():
    sweep = Sweep(GRID, swept().run().rows)
    assert sweep.begin(Worker().start(), 0) == ()
    assert sweep.done
    assert sweep.fold(Worker().start()) is None
    assert sweep.failure is None
