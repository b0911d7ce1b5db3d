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


def of(samples):
    return Snapshot(state="finished", total_steps=30, skipped_samples=samples)


FEW, MANY = "1 unreadable sample skipped", "1,234 unreadable samples skipped"


@pytest.mark.parametrize(
    ("what", "snapshot", "how", "said"),
    [
        *[("how it ended is said by the last line alone", Snapshot(state=state, total_steps=30), {},
           [TRAINED]) for state in ("finished", "stopped", "failed")],
        ("an unmeasured rate is not a number", Snapshot(state="finished", total_steps=1),
         {"steps_per_s": None},
         ["trained 1 step, – steps/s; recorded to run.csv"]),
        ("an unreadable sample is reported", of(1), {}, [FEW, TRAINED]),
        ("and so are many", of(1234), {}, [MANY, TRAINED]),
        ("also where it failed", of(1), {"failure": BROKEN},
         [FEW, "gpudash: it broke; recorded until then to run.csv"]),
        ("a file's name of two lines is shown in one", of(0), {"path": "a\nb.csv"},
         [r"trained 30 steps, 25.0 steps/s; recorded to 'a\nb.csv'"]),
        ("also where it failed", Snapshot(state="failed"), {"path": "a\tb.csv", "failure": BROKEN},
         [r"gpudash: it broke; recorded until then to 'a\tb.csv'"]),
    ],
)  # fmt: skip
def test_what_is_said_at_the_end(capsys, what, snapshot, how, said):
    assert ended(snapshot, **how) == ("failure" in how)
    assert capsys.readouterr().err.splitlines() == said, what


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_at_the_end_there_is_no_line_of_progress(state):
    assert progress_line(Snapshot(state=state, total_steps=30, planned_steps=90)) == ""


def test_without_a_terminal_no_line_of_progress_is_printed_twice_in_a_row():
    printed, news = io.StringIO(), News()
    printer = Printer(printed, lambda _: "16/16 pairs")
    for state in ("training", "finished"):
        news.on_snapshot(Snapshot(state=state))
        printer.show(news)
    assert printed.getvalue() == "16/16 pairs\n"


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
