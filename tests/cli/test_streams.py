"""Output for programs: rows on standard output, and one frame as text."""

import csv
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudash.cli.main import main
from gpudash.cli.options import OF_A_SCRIPT
from gpudash.metrics import METRICS
from gpudash.recording.csv_format import columns
from gpudash.sinks.sink import SINKS
from gpudash.snapshot import Snapshot
from gpudash.tui.running import TRAINED_S, is_time
from tests import waiting, worker_double
from tests.cli.conftest import Refused

SHORT = ("--steps", "60", "--interval", "0.1", "--device", "cpu")
ENDLESS = ("--interval", "0.05", "--device", "cpu")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(called_with_double: None, private: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Call gpudash in an empty folder; return its exit code and the text of its two streams."""

    def call(*arguments: str) -> tuple[int, str, str]:
        return main(arguments), *capfd.readouterr()

    return call


def test_record_to_the_standard_output_is_the_csv_alone(run: Run, tmp_path: Path) -> None:
    code, printed, said = run("--record", "-", *SHORT)
    assert code == 0
    rows = list(csv.DictReader(printed.splitlines()))
    assert list(rows[0]) == list(columns())
    assert sum(int(row["steps"]) for row in rows) == 60
    assert "; recorded to standard output" in said.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_jsonl_holds_the_objects_that_an_export_writes(run: Run, tmp_path: Path) -> None:
    _, printed, _ = run("--jsonl", *SHORT)
    streamed = [json.loads(line) for line in printed.split("\n") if line]
    assert sum(row["steps"] for row in streamed) == 60
    run("--record", "run.csv", *SHORT)
    run("export", "run.csv", "-o", "rows.jsonl")
    exported = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert list(streamed[0]) == list(exported[0])
    assert set(streamed[0]) <= set(METRICS)
    for name in streamed[0]:  # a row may end before anything was read
        kinds = [{type(row[name]) for row in rows} - {type(None)} for rows in (streamed, exported)]
        assert kinds[0] == kinds[1] or not all(kinds), name


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--to", "cvs:x"], "--to 'cvs:x' is not valid; valid: csv:FILE, jsonl:FILE, pro"),
        (["--to", "csv"], "--to 'csv' is not valid; valid: csv:FILE, jsonl:FILE, prom"),
        (["--to", "csv:a", "--to", "csv:b"], "--to csv is given twice; valid: each name once"),
        (["--to", "csv:there.csv"], "there.csv exists; --force overwrites it"),
        (["--jsonl", "--to", "jsonl:a"], "does not go with the same rows on standard output"),
        (["run", "--connect", "localhost:1", "--to", "csv:a", "--", "true"], "not with --connect"),
    ],
)
def test_an_impossible_destination_is_refused(
    words: list[str], why: str, private: Path, refused: Refused
) -> None:
    record = [] if words[0] in ("--jsonl", "run") else ["--record", "run.csv"]
    (private / "there.csv").touch()
    assert why in refused(*words, *record)


def test_every_destination_is_a_sink() -> None:
    assert set(OF_A_SCRIPT) <= set(SINKS)


def test_a_row_is_written_when_it_is_complete_and_a_reader_that_closes_ends_the_run(
    tmp_path: Path,
) -> None:
    process = subprocess.Popen(
        worker_double.gpudash("--jsonl", "-q", *ENDLESS),
        cwd=tmp_path,
        env=worker_double.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    first, second = (json.loads(process.stdout.readline()) for _ in range(2))
    assert first["time_s"] < second["time_s"]
    assert process.poll() is None
    process.stdout.close()
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, b"")


def test_a_stuck_reader_does_not_delay_an_interrupted_run(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    os.write(write, bytes(1 << 20))  # as much as it holds
    os.set_blocking(write, True)
    process = subprocess.Popen(
        worker_double.gpudash("--jsonl", *ENDLESS),
        cwd=tmp_path,
        env=worker_double.environment(),
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    assert any("steps/s" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    os.close(read)


def test_an_output_that_is_full_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = waiting.done(
            *worker_double.gpudash("--jsonl", "-q", *ENDLESS),
            cwd=tmp_path,
            env=worker_double.environment(),
            stdout=full,
        )
    assert (done.returncode, done.stderr) == (
        1,
        "gpudash: cannot write the output: the disk is full\n",
    )


def test_quiet_prints_errors_alone(run: Run, tmp_path: Path) -> None:
    assert run("--record", "run.csv", "-q", *SHORT) == (0, "", "")
    assert (tmp_path / "run.csv").exists()
    code, printed, said = run("--jsonl", "-q", "--set", "batch_size=1000000", *SHORT)
    assert (code, printed) == (2, "")
    (line,) = said.splitlines()
    assert "batch_size=1000000 takes 9.0 GiB" in line
    code, printed, again = run("--record", "no.csv", "-q", "--set", "batch_size=1000000", *SHORT)
    assert (code, printed, again) == (2, "", said)
    assert not [*tmp_path.glob("no.*")]


# ── one frame ───────────────────────────────────────────────────────────────────────────


def test_once_prints_the_dashboard_at_its_end(run: Run) -> None:
    code, printed, said = run("--once", *SHORT)
    assert (code, said) == (0, "")
    lines = printed.splitlines()
    assert (len(lines), max(map(len, lines))) == (40, 120)
    assert re.search("▶ training.* 60/60 ", lines[0])
    assert re.search(r" [\d.,]+ steps/s", lines[1])  # after its end it has no rate
    assert "\x1b" not in printed


def test_once_may_be_in_color_or_in_ascii(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    _, printed, _ = run("--once", "--color", "always", "--ascii", *SHORT)
    assert re.search("\x1b\\[[^m]*38;2;", printed)
    assert printed.isascii()


def test_once_ends_as_the_run_would(run: Run) -> None:
    code, printed, said = run("--once", "--set", "batch_size=1000000", *SHORT)
    assert (code, printed, said.count("\n")) == (2, "", 1)
    assert said.startswith("gpudash: batch_size=1000000 takes 9.0 GiB")


@pytest.mark.parametrize(
    ("snapshot", "is_now"),
    [
        (Snapshot(state="starting"), False),
        (Snapshot(state="training", training_s=TRAINED_S / 2), False),
        (Snapshot(state="training", training_s=TRAINED_S), True),
        (Snapshot(state="training", training_s=TRAINED_S, planned_steps=900), False),
        (Snapshot(state="failed"), True),
    ],
)
def test_a_frame_waits_for_the_end_or_where_there_is_none_for_some_training(
    snapshot: Snapshot, *, is_now: bool
) -> None:
    assert is_time(snapshot) == is_now
