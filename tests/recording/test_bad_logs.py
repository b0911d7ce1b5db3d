"""A log that went wrong is read as far as it makes sense, in little memory and time."""

import itertools

from msgspec.structs import replace

from gpudash.recording.intervals import AT_ONCE, Interval
from gpudash.recording.log import RowReader, line_of
from gpudash.run.replayed import replayed
from gpudash.sinks.export import export
from tests.recording.record import record, sent
from tests.recording.test_log import ORIGIN, intervals, recorded
from tests.scripted_run import BEGAN_S, Trainer


def test_a_log_cut_in_mid_line_has_the_rows_up_to_there(tmp_path):
    log = recorded(tmp_path)
    whole, text = intervals(RowReader(log)), log.read_bytes()
    for cut in range(0, len(text), 997):
        log.write_bytes(text[:cut] if cut > text.index(b"\n") else text)
        rows = intervals(RowReader(log))
        assert rows == whole[: len(rows)]


def test_of_two_writers_into_one_log_each_line_is_read_or_left_out(tmp_path):
    log = recorded(tmp_path)
    first = log.read_bytes().splitlines(keepends=True)
    other = Trainer(BEGAN_S + 3.0)
    second = [line_of(ORIGIN), *map(line_of, sent([other.start(), *other.steps(60)], BEGAN_S))]
    log.write_bytes(first[0] + b"".join(itertools.chain(*zip(first[1:], second, strict=False))))
    reader = RowReader(log)
    rows = intervals(reader)
    assert reader.refused == 1  # the second header
    assert all(before.ended_s == after.began_s for before, after in itertools.pairwise(rows))
    assert replayed(log).snapshot is not None


def test_after_a_clock_has_jumped_the_rows_come_in_parts_and_none_is_missing(tmp_path):
    run, path = Trainer(), tmp_path / "run.csv"
    bodies = [run.start(), *run.steps(10), run.wait(AT_ONCE * 10), *run.steps(40)]
    log = record(path, sent(bodies, BEGAN_S), run.now_s, ORIGIN)
    assert sum(row.steps for row in intervals(RowReader(log))) == 50
    batches = itertools.groupby(RowReader(log), key=lambda one: isinstance(one, Interval))
    assert max(len([*of]) for is_row, of in batches if is_row) == AT_ONCE
    export(log, tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == path.read_bytes()


def test_a_clock_that_jumps_back_costs_no_later_step(tmp_path):
    run = Trainer()
    bodies = [run.start(), *run.steps(40)]
    run.now_s -= 1.0
    bodies += run.steps(80)
    log = record(tmp_path / "run.csv", [*sent(bodies, BEGAN_S)], run.now_s, ORIGIN)
    assert sum(row.steps for row in intervals(RowReader(log))) == 120
    assert replayed(log).snapshot.total_steps == 120


def test_a_report_of_the_future_is_left_out(tmp_path):
    log = recorded(tmp_path)
    *lines, closed = log.read_bytes().splitlines(keepends=True)
    whole = intervals(RowReader(log))
    (later,) = sent([Trainer(BEGAN_S + 1e6).step()], BEGAN_S)
    log.write_bytes(b"".join([*lines, line_of(replace(later, sent_s=BEGAN_S + 9.0)), closed]))
    reader = RowReader(log)
    assert intervals(reader) == whole
    assert reader.refused == 1
