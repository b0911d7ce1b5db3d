import io
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpudash.cli.headless import (
    News,
    Printer,
    interruptions,
    progress_line,
    run_headless,
)
from gpudash.diagnosis.limits import Limits
from gpudash.protocol.training import Failed
from gpudash.snapshot import Snapshot


def ended(snapshot, path="run.csv", failure=None, steps_per_s=25.0, limits=None):
    """The exit code of a session that ends as soon as it is started."""
    session = SimpleNamespace(
        snapshot=snapshot,
        failure=failure,
        steps_per_s=steps_per_s,
        limits=limits or Limits(),
        sink_failures={},
        start=lambda listener: listener.on_snapshot(snapshot),
        wait=lambda _timeout_s: True,
        close=lambda: None,
        finish_sink=lambda _name: None,
        has_rows=lambda _sink: True,
        price=None,
    )
    return run_headless(session, Path(path))


BROKEN = Failed(kind="error", sentence="it broke")
TRAINED = "trained 30 steps, 25.0 steps/s; recorded to run.csv"


def lines(capsys, skipped_samples, failure=None):
    snapshot = Snapshot(state="finished", total_steps=30, skipped_samples=skipped_samples)
    ended(snapshot, failure=failure)
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_the_last_line_alone_says_how_it_ended_and_at_what_rate(capsys, state):
    assert progress_line(Snapshot(state=state, total_steps=30, planned_steps=90)) == ""
    assert ended(Snapshot(state=state, total_steps=30)) == 0
    assert capsys.readouterr().err.splitlines() == [TRAINED]


def test_an_unmeasured_rate_is_not_a_number(capsys):
    ended(Snapshot(total_steps=1), steps_per_s=None)
    assert capsys.readouterr().err.endswith("trained 1 step, – steps/s; recorded to run.csv\n")


def test_without_a_terminal_no_line_of_progress_is_printed_twice_in_a_row():
    printed, news = io.StringIO(), News()
    printer = Printer(printed, lambda _: "16/16 pairs")
    for state in ("training", "finished"):
        news.on_snapshot(Snapshot(state=state))
        printer.show(news)
    assert printed.getvalue() == "16/16 pairs\n"


@pytest.mark.parametrize(
    ("samples", "clause"),
    [(1, "1 unreadable sample skipped"), (1234, "1,234 unreadable samples skipped")],
)
def test_unreadable_samples_are_reported_at_the_end(capsys, samples, clause):
    assert lines(capsys, samples) == [clause, TRAINED]
    assert lines(capsys, samples, BROKEN)[0] == clause


def test_a_file_name_of_two_lines_is_shown_in_one(capsys):
    ended(Snapshot(state="finished", total_steps=30), "a\nb.csv")
    ended(Snapshot(state="failed"), "a\tb.csv", BROKEN)
    assert capsys.readouterr().err.splitlines() == [
        r"trained 30 steps, 25.0 steps/s; recorded to 'a\nb.csv'",
        r"gpudash: it broke; recorded until then to 'a\tb.csv'",
    ]


@pytest.mark.parametrize(("before", "arrives"), [(signal.SIG_DFL, 1), (signal.SIG_IGN, 0)])
def test_under_nohup_a_run_outlives_its_terminal(before, arrives):
    of_tests = signal.signal(signal.SIGHUP, before)
    arrived = []
    try:
        with interruptions(arrived):
            os.kill(os.getpid(), signal.SIGHUP)
            assert arrived == [signal.SIGHUP] * arrives
        assert signal.getsignal(signal.SIGHUP) == before
    finally:
        signal.signal(signal.SIGHUP, of_tests)
