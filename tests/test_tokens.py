"""Tokens, where a source tells of them: from a step to rows, a CSV, a replay and the screen."""

import pytest
from msgspec.structs import replace

from gpudash.recording.csv_reader import CsvReader
from gpudash.recording.intervals import Interval, Intervals
from gpudash.recording.step_columns import rounded
from gpudash.statistics import without
from gpudash.tui.panels import View
from gpudash.views.live import LiveView
from tests.lives import said
from tests.recording.test_csv_format import recording
from tests.scripted_run import BEGAN_S, PLAN, Trainer, step
from tests.tui.frames import frame

TOKENS = 512


def trained(count):
    """Return a start and steps of so many tokens, 20 a second."""
    run = Trainer()
    started = run.start()
    steps = [replace(one, tokens=TOKENS) for report in run.steps(count) for one in report.steps]
    return [started, run.progress(*steps)]


def rows_of(items, close_s):
    intervals = Intervals(BEGAN_S)
    return [*(row for item in items for row in intervals.fold(item)), *intervals.close(close_s)]


@pytest.fixture
def rows():
    return rows_of(trained(20), BEGAN_S + 2.0)


def test_a_row_has_the_tokens_of_its_steps_and_without_a_step_none(rows):
    assert [row.ranks[0].tokens for row in rows] == [10 * TOKENS] * 2 + [None] * 2


def test_a_row_of_steps_whose_tokens_nobody_knows_has_none():
    run = Trainer()
    assert {row.ranks[0].tokens for row in rows_of([run.start(), *run.steps(20)], 0.0)} == {None}


def test_a_csv_tells_of_them_and_is_read_so(rows, tmp_path):
    file = recording(tmp_path / "run.csv")
    for row in rows:
        file.take(row)
    file.close()
    read = [one.ranks[0].tokens for one in CsvReader(file.path) if isinstance(one, Interval)]
    assert read == [row.ranks[0].tokens for row in rows]


def test_a_log_tells_of_them():
    (*_, report) = trained(20)
    assert [one.tokens for one in rounded(report).steps] == [TOKENS] * 20


def test_a_warm_up_is_left_out_of_them():
    alike = replace(step(8, BEGAN_S), tokens=8 * TOKENS, count=8)
    assert without(alike, 3).tokens == 5 * TOKENS


@pytest.mark.parametrize("known", [True, False])
def test_the_screen_shows_their_rate_if_it_is_known(known):
    live = LiveView(PLAN, BEGAN_S)
    run = Trainer()
    for item in trained(20) if known else [run.start(), *run.steps(20)]:
        live.take(said(item))
    snapshot = live.snapshot(BEGAN_S + 1.0)
    assert snapshot.tokens_per_s == (pytest.approx(20 * TOKENS) if known else None)
    shown = "".join(text for row in frame(snapshot, View(), (160, 40)) for text, _ in row)
    assert ("10,240 tokens/s" in shown) == known
    assert "padding" not in shown


def test_the_screen_shows_the_share_of_padding_beside_it():
    live, run = LiveView(PLAN, BEGAN_S), Trainer()
    live.take(said(run.start()))
    for report in run.steps(20):
        (one,) = report.steps
        padded = replace(one, tokens=128, values=one.values | {"padding_tokens": 384.0})
        live.take(said(replace(report, steps=(padded,))))
    rows = frame(live.snapshot(BEGAN_S + 1.0), View(), (160, 40))
    shown = "".join(text for row in rows for text, _ in row)
    assert "2,560 tokens/s and 75 % padding" in shown
