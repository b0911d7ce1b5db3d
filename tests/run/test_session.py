"""One run, end to end, without a screen: real sampler, real files, and a process that trains.

That is the double, but where the training itself matters.
"""

import csv
import json
import math
import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gpudash.compare.ab import Question
from gpudash.errors import RecordingError, WorkerError
from gpudash.protocol.commands import Blocks, Plan
from gpudash.protocol.envelope import Envelope
from gpudash.recording.intervals import Intervals
from gpudash.recording.log import LogReader
from gpudash.run.job import TrainingJob
from gpudash.run.session import Session
from gpudash.run.source import Source
from gpudash.run.telemetry_source import TelemetrySource
from gpudash.run.workload_process import start as start_workload
from gpudash.views.time_breakdown import TimeAccount
from tests.run.screens import Screen
from tests.waiting import PATIENCE_S, until
from tests.worker_double import start_double

SMALL = {"batch_size": "2", "num_workers": "0", "model_scale": "small"}


Begin = Callable[..., tuple[Session, Screen]]


@pytest.fixture
def begin() -> Iterator[Begin]:
    sessions: list[Session] = []

    def start(
        record: Path | None = None,
        rate_hz: float = 20,
        start_source: Callable[[Plan], TrainingJob] = start_double,
        **plan: object,
    ) -> tuple[Session, Screen]:
        settings = SMALL | plan.pop("settings", {})
        planned = Plan(workload="encdec", device="cpu", settings=settings, **plan)
        session = Session(planned, interval_s=0.1, rate_hz=rate_hz, start_source=start_source)
        screen = Screen()
        sessions.append(session)
        if record is not None:
            session.begin_sink("recording", record)
        session.start(screen)
        return session, screen

    yield start
    for session in sessions:
        session.close()


def described(folder: Path, name: str = "run") -> dict[str, Any]:
    """Return what a recording's JSON says."""
    return json.loads((folder / f"{name}.json").read_text())


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_last_snapshot_knows_every_step_that_was_recorded(begin: Begin, tmp_path: Path) -> None:
    session, screen = begin(record=tmp_path / "run.csv", rate_hz=0.01, steps=30)
    assert session.wait(PATIENCE_S)
    session.close()
    assert rows_of(tmp_path / "run.csv")[-1]["step"] == "30"
    assert (screen.newest.state, screen.newest.total_steps) == ("finished", 30)
    assert (screen.newest.gpu_missing or "").startswith("training on the CPU")


def test_levers_move_while_the_same_worker_trains_on(begin: Begin, tmp_path: Path) -> None:
    session, screen = begin(record=tmp_path / "run.csv")
    pid = screen.until(lambda s: s.total_steps > 20).worker_pid
    session.change({"batch_size": "4"})
    screen.until(lambda s: s.settings.get("batch_size") == "4" and not s.pending)
    session.change({"batch_size": "0"})
    screen.until(lambda s: "whole number" in s.notice)
    settled = screen.until(lambda s: s.results and s.results[-1].steps > 5)
    assert settled.worker_pid == pid
    assert [row.number for row in settled.results] == [1, 2]
    assert settled.results[1].configuration == "batch_size=4"
    assert settled.markers[-1].label == "batch_size=4"
    session.close()
    rows = rows_of(tmp_path / "run.csv")
    assert [row["segment"] for row in rows] == sorted(row["segment"] for row in rows)
    assert {(row["segment"], row["batch_size"]) for row in rows} == {("0", "2"), ("1", "4")}


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (Session.end_comparison, "ended"),
        (Session.stop, "the training was stopped"),
        (Session.leave, "the dashboard was left"),
        (lambda session: session.restart(session.plan), "the training was restarted"),
    ],
)
def test_the_log_says_what_an_ab_had_measured_when_it_was_cut_short(
    begin: Begin, how: Callable[[Session], object], why: str
) -> None:
    session, screen = begin()
    session.compare(Question(lever="pipelined", a="off", b="on", pairs=9000))
    screen.until(lambda s: s.comparison is not None)
    how(session)
    said = rf"A/B: (no verdict for )?pipelined=on.* {why} (after \d+ pairs|before its 9000)"
    screen.until(lambda _: any(re.match(said, line) for line in screen.log))
    session.close()


class Metering(TelemetrySource):
    """Stamps the ticks of energy counters, as far as a session knows."""

    def __init__(self) -> None:
        super().__init__(energy=True)

    def read(self) -> list[Envelope]:
        return []


@pytest.mark.parametrize("beside", [(), (Metering(),)])
def test_where_energy_is_metered_blocks_of_an_ab_are_long_enough_for_it(
    beside: Sequence[Source], tmp_path: Path
) -> None:
    plan = Plan(workload="encdec", device="cpu", settings=SMALL)
    session = Session(plan, start_source=start_double, beside=beside)
    session.begin_sink("recording", tmp_path / "run.csv")
    session.start(Screen())
    session.compare(Question(lever="pipelined", a="off", b="on", pairs=2))
    until(lambda: '"Blocks"' in (tmp_path / "run.jsonl").read_text())
    session.close()
    told = [one.body for one in LogReader(tmp_path / "run.jsonl") if isinstance(one, Envelope)]
    asked = next(one for one in told if isinstance(one, Blocks))
    assert all((one.min_s >= 2.0) == bool(beside) for one in asked.blocks)


def test_a_refusal_is_logged_in_full(begin: Begin) -> None:
    """A status line may be too short for it."""
    session, screen = begin()
    screen.until(lambda s: s.total_steps > 0)
    session.change({"batch_size": "1000000"})
    screen.until(lambda s: s.refused)
    assert "batch_size=1000000 takes 9.0 GiB, 1.0 GiB are available" in screen.log


def test_a_dead_worker_is_reported_and_another_one_takes_over(begin: Begin) -> None:
    session, screen = begin()
    first = screen.until(lambda s: s.results and s.results[0].steps > 5)
    session.change({"pipelined": "on"})
    screen.until(lambda s: any("switching" in line for line in screen.log))
    os.kill(first.worker_pid, signal.SIGKILL)
    failed = screen.until(lambda s: s.state == "failed")
    assert failed.status == "the training process was killed by SIGKILL"  # no printed line did it
    assert screen.failures[0].kind == "error"
    session.restart(Plan(workload="encdec", device="cpu", settings=SMALL | {"batch_size": "4"}))
    again = screen.until(lambda s: s.results and s.results[-1].configuration == "batch_size=4")
    assert again.worker_pid != first.worker_pid
    assert again.results[0].steps >= first.results[0].steps
    assert session.failure is None


@pytest.mark.parametrize(
    ("of_gpudash", "sentence"),
    [
        (False, "the training process was killed by SIGKILL"),
        (True, "gpudash itself failed: ZeroDivisionError: oops"),
    ],
)
def test_a_recording_names_the_failure_that_ended_it(
    begin: Begin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sentence: str,
    *,
    of_gpudash: bool,
) -> None:
    session, screen = begin(record=tmp_path / "run.csv")
    pid = screen.until(lambda s: s.recording and s.recording.rows).worker_pid
    if of_gpudash:
        fail = Mock(side_effect=ZeroDivisionError("oops"))
        monkeypatch.setattr("gpudash.run.fold.TimeAccount.fold", fail)
    else:
        os.kill(pid, signal.SIGKILL)
    assert session.wait(PATIENCE_S)
    session.close()
    (failure,) = described(tmp_path)["failures"]
    assert not described(tmp_path)["complete"]
    assert failure["sentence"] == sentence
    rows_s = float(rows_of(tmp_path / "run.csv")[-1]["time_s"])
    assert of_gpudash or 0 < failure["at_s"] <= rows_s


def test_rows_take_a_message_before_a_view_can_fail_on_it(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[type, object]] = []
    for kind in (Intervals, TimeAccount):

        def fold(self: object, item: object, kind: type = kind, own: Any = kind.fold) -> object:
            taken.append((kind, item))
            return own(self, item)

        monkeypatch.setattr(kind, "fold", fold)
    session, screen = begin(record=tmp_path / "run.csv")
    screen.until(lambda s: s.recording and s.recording.rows)
    session.close()
    of_rows = {id(item): at for at, (kind, item) in enumerate(taken) if kind is Intervals}
    of_views = {id(item): at for at, (kind, item) in enumerate(taken) if kind is TimeAccount}
    assert of_rows
    assert of_rows.keys() & of_views.keys()
    assert all(at < of_views.get(item, math.inf) for item, at in of_rows.items())  # states are new


def test_a_restart_that_fails_leaves_the_plan_as_it_was(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _ = begin()
    plan = session.plan
    monkeypatch.setattr(session, "_start_source", Mock(side_effect=WorkerError))
    with pytest.raises(WorkerError):
        session.restart(Plan(workload="augment", settings={}))
    assert session.plan == plan


def test_a_bad_setting_fails_with_its_reason_and_leaves_no_file(
    begin: Begin, tmp_path: Path
) -> None:
    session, screen = begin(record=tmp_path / "run.csv", settings={"batch_size": "900000"})
    assert session.wait(PATIENCE_S)
    assert session.failure.kind == "bad_setting"
    session.close()
    assert list(tmp_path.iterdir()) == []
    assert "GiB are available" in screen.newest.status


def test_recording_goes_on_and_off_while_training(begin: Begin, tmp_path: Path) -> None:
    session, screen = begin()
    screen.until(lambda s: s.total_steps > 5)
    session.begin_sink("recording", tmp_path / "a.csv")
    screen.until(lambda s: s.recording and s.recording.rows > 1)
    assert screen.newest.recording.path == str(tmp_path / "a.csv")
    session.stop_recording()
    screen.until(lambda s: s.recording is None)
    session.begin_sink("recording", tmp_path / "b.csv")
    screen.until(lambda s: s.recording is not None)
    with pytest.raises(RecordingError, match="b.csv is being recorded"):
        session.begin_sink("recording", tmp_path / "b.csv", force=True)
    screen.until(lambda s: s.recording and s.recording.rows > 1)
    session.close()
    for name in ("a", "b"):
        assert len(rows_of(tmp_path / f"{name}.csv")) > 1
        assert described(tmp_path, name)["complete"]
        recorded_s = float(rows_of(tmp_path / f"{name}.csv")[-1]["time_s"])
        # from the newest step reported at the begin to the newest one reported at the end
        wall_s = described(tmp_path, name)["account"]["wall_s"]
        assert wall_s == pytest.approx(recorded_s, abs=1.0)


def test_requests_before_the_start_are_done_after_it() -> None:
    plan = Plan(workload="encdec", device="cpu", settings=SMALL)
    session, screen = Session(plan, start_source=start_double), Screen()
    session.new_row()
    session.pause()
    session.resume()
    session.start(screen)
    screen.until(lambda s: s.worker_pid)
    session.close()
    assert session.failure is None


def test_stopping_before_torch_has_loaded_is_quick_and_clean(begin: Begin, tmp_path: Path) -> None:
    session, _ = begin(record=tmp_path / "run.csv", start_source=start_workload)
    session.stop()
    assert session.wait(PATIENCE_S)
    session.close()
    assert session.failure is None
    assert described(tmp_path)["complete"]


def test_nothing_that_a_killed_worker_kept_outlives_it(begin: Begin, temporary: Path) -> None:
    _, screen = begin()
    first = screen.until(lambda s: s.total_steps > 5)
    (kept,) = temporary.iterdir()
    (kept / "listener-of-a-loader").touch()
    os.kill(first.worker_pid, signal.SIGKILL)
    screen.until(lambda s: s.state == "failed")
    assert not list(temporary.iterdir())
