"""The command line: runs, recordings and outputs. Any mistake is one line and exit code 2."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from tests import waiting, worker_double
from tests.cli.conftest import Refused
from tests.waiting import until

ON_CPU = ["--batch-size", "2", "--device", "cpu"]
DOUBLE = worker_double.gpudash("--record", "run.csv", "--interval", "0.05", *ON_CPU)


def gpudash(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return waiting.done(sys.executable, "-m", "gpudash", *arguments, cwd=cwd)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resnet"], "unknown workload 'resnet'; valid: encdec"),
        (["--set", "speed=1"], "unknown lever 'speed'; valid: pipelined, batch_size"),
        (["--set", "pipelined"], "--set 'pipelined' is not valid; valid: LEVER=VALUE"),
        (["--set", "pipelined=yes"], "lever pipelined: 'yes' is not valid; valid: off, on"),
        (["--batch-size", "0"], "'0' is not valid; valid: a whole number from 1"),
        (["--steps", "x"], "--steps x is not valid; valid: a whole number from 1 to 1000000000000"),
        (["--device", "cuda:٣"], "is not valid; valid: auto, cpu, cuda, cuda:N"),
        (["--batch-size", "2.5"], "'2.5' is not valid"),
        (["--device", "gpu"], "device 'gpu' is not valid; valid: auto, cpu, cuda, cuda:N"),
        (["--steps", "0"], "--steps 0 is not valid"),
        (["--steps", "1.5"], "--steps 1.5 is not valid"),
        (["--steps", "nan"], "--steps nan is not valid"),
        (["--duration", "-1"], "--duration -1 is not valid"),
        (["--interval", "0"], "--interval 0 is not valid"),
        (["--steps", "5", "--duration", "5"], "does not go with"),
        (["--pipelined", "--serial"], "does not go with"),
        (
            ["--batch-size", "2", "--set", "batch_size=3"],
            "lever batch_size is set to 3 and to 2; valid: one of the two",
        ),
        (
            ["--pipelined", "--set", "pipelined=off"],
            "pipelined is set to off and to on; valid: one",
        ),
        (["--set", "seed=1", "--set", "seed=2"], "lever seed is set to 1 and to 2; valid: one"),
        (["--frobnicate"], "--frobnicate"),
        (["--record", ""], "--record '' is not valid; valid: a file's name"),
        (["sweep", "--vary", "seed=1", "--csv", ""], "--csv '' is not valid; valid: a file's name"),
        (
            ["ab", "--lever", "seed=1,2", "--within", "0"],
            "--within 0% is not valid; valid: a number from 0.01% to 50%",
        ),
        (["--live", "--record", "-"], "--live goes with --record FILE.csv"),
        (["--every-step", "--jsonl"], "--every-step goes with --record FILE.csv"),
        (["--jsonl", "--record", "a.csv"], "--record does not go with --jsonl"),
        (["--quiet"], "--quiet goes with --record FILE.csv or --jsonl"),
        (["--live"], "--live goes with --record FILE.csv"),
        (["--every-step"], "--every-step goes with --record FILE.csv"),
        (["encdec"], "the dashboard needs a terminal; --record FILE.csv runs without one"),
        (["--batch-size", "08", "--set", "batch_size=8"], "needs a terminal"),  # it is the same
    ],
)
def test_a_bad_argument_is_refused_in_one_line(
    arguments: list[str], message: str, refused: Refused
) -> None:
    assert message in refused(*arguments)


@pytest.mark.parametrize("how", [(), ("--live",)], ids=["headless", "on screen"])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("run.csv", "run.csv exists; --force overwrites it\n"),
        ("folder", "folder"),
        ("nowhere/run.csv", "nowhere/run.csv"),
    ],
)
def test_a_record_file_that_cannot_be_made_is_refused_before_anything_starts(
    how: tuple[str, ...],
    name: str,
    why: str,
    private: Path,
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gpudash.cli.dashboard.on_terminal", lambda: True)
    (private / "folder").mkdir()
    (private / "run.csv").write_text("precious")
    assert why in refused("--record", name, *how, *ON_CPU)
    assert (private / "run.csv").read_text() == "precious"


@pytest.mark.usefixtures("shared_memory")
def test_record_alone_trains_the_default_workload_and_accounts_for_every_step(
    tmp_path: Path, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(short_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    arguments = ["--record", "run.csv", "--steps", "30", "--set", "num_workers=1", *ON_CPU]
    arguments += ["--set", "model_scale=small"]
    done = gpudash(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(r"trained 30 steps, [0-9.]+ steps/s; recorded to run\.csv(; .*)?", last)
    assert "\x1b" not in done.stderr  # plain lines in a pipe
    with (tmp_path / "run.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(int(row["steps"]) for row in rows) == 30
    assert rows[-1] | {"step": "30", "skipped_samples": "0"} == rows[-1]
    assert {row["gpu_index"] for row in rows} == {""}  # no GPU was read: empty, not 0
    assert {row["skipped_samples"] for row in rows} <= {"", "0"}
    described = json.loads((tmp_path / "run.json").read_text())
    assert described["command"][0] == "gpudash"
    assert described | {"complete": True, "seed": 0} == described
    assert described["segments"][0]["settings"]["model_scale"] == "small"
    account = described["account"]
    parts = account.keys() - {"wall_s"}
    assert sum(account[part] for part in parts) == pytest.approx(account["wall_s"], abs=1e-5)
    assert 0 < account["phases_s"] <= account["wall_s"]

    assert not list(short_path.iterdir())  # no socket of the loader is left

    again = gpudash(*arguments, cwd=tmp_path)
    assert again.returncode == 2
    assert "--force" in again.stderr


@pytest.mark.parametrize(
    "numbers", [[signal.SIGTERM], [signal.SIGINT, signal.SIGINT]], ids=["SIGTERM", "ctrl-c twice"]
)
def test_an_interrupted_recording_is_complete_and_says_where_it_is(
    numbers: list[signal.Signals], tmp_path: Path, short_path: Path
) -> None:
    environment = worker_double.environment(TMPDIR=str(short_path))
    process = subprocess.Popen(
        DOUBLE, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment
    )
    path = tmp_path / "run.csv"
    until(lambda: path.exists() and path.read_text().count("\n") >= 4)
    assert list(short_path.glob("gpudash-*"))
    first, *others = numbers
    process.send_signal(first)
    assert "stopping\n" in iter(process.stderr.readline, "")
    for number in others:
        process.send_signal(number)
    *earlier, last = process.stderr
    assert process.wait() == 0
    said = r"interrupted after \d+ steps, [0-9.]+ steps/s; recorded to run\.csv(; .+)?\n"
    assert re.fullmatch(said, last)
    assert not any("finished" in line for line in earlier)
    assert not list(short_path.glob("gpudash-*"))
    assert path.read_text().endswith("\n")
    assert json.loads((tmp_path / "run.json").read_text())["complete"]


def test_a_closed_progress_output_does_not_end_the_recording(tmp_path: Path) -> None:
    command = [*DOUBLE, "--steps", "30"]
    environment = worker_double.environment(PYTHONUNBUFFERED="")  # as usual
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, env=environment)
    process.stderr.close()
    assert process.wait(90) == 0
    assert (tmp_path / "run.csv").read_text().splitlines()[-1].split(",")[6] == "30"
    assert json.loads((tmp_path / "run.json").read_text())["complete"]


def test_a_disk_that_fills_up_ends_the_run_with_what_was_recorded(tmp_path: Path) -> None:
    command = f"ulimit -f 4; exec {shlex.join(DOUBLE)}"
    ended = waiting.done("sh", "-c", command, cwd=tmp_path, env=worker_double.environment())
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("gpudash: ")
    assert "Traceback" not in ended.stderr
    assert "finished" not in ended.stderr
    rows = (tmp_path / "run.csv").read_text()
    assert rows.count("\n") > 1
    assert rows.endswith("\n")


def test_list_names_every_lever_and_its_default(printed: Callable[..., str]) -> None:
    text = printed("list")
    assert "encdec (default)" in text
    assert "pipelined = off   [off, on]   takes effect: next step" in text
    assert text.count("  num_workers = ") > 1
    assert text.count("Loader processes that make batches;") == 1  # it is explained once
    entry, *_ = json.loads(printed("list", "--json"))["workloads"]
    assert entry["name"] == "encdec"
    assert {lever["name"] for lever in entry["levers"]} >= {"pipelined", "batch_size", "data"}


def test_list_shows_the_default_of_a_lever_on_a_cpu(printed: Callable[..., str]) -> None:
    text = printed("list", "masked_loss")
    assert "\n  batch_size = 256, on a CPU 16   [a whole number from" in text
    assert "\n  num_workers = 2   [" in text


# ── an output that is poor in characters, full or closed ────────────────────────────────


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
BARE = ["-c", "import sys; from workloads.__main__ import report; sys.exit(report('{}'))"]


def printing_to(stdout: IO[bytes], command: list[str]) -> subprocess.CompletedProcess[str]:
    return waiting.done(sys.executable, *command, stdout=stdout)


def test_characters_that_the_locale_cannot_print_become_ascii() -> None:
    command = [sys.executable, "-m", "gpudash", "list"]
    done = subprocess.run(command, env=os.environ | ASCII, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "256x256" in done.stdout.decode("ascii")


@pytest.mark.parametrize(
    "command",
    [["-m", "gpudash", "list"], ["-m", "gpudash", "--version"], BARE],
    ids=["list", "version", "uninstrumented"],
)
def test_a_full_disk_on_output_is_one_line_and_exit_code_1(command: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = printing_to(full, command)
    assert done.returncode == 1
    assert done.stderr.endswith("\n")
    (line,) = done.stderr.splitlines()
    assert re.fullmatch(r"(gpudash: cannot write the output|python -m .* the result): .+", line)


@pytest.mark.parametrize(
    "command",
    [["-m", "gpudash", "list"], ["-m", "gpudash", "--help"], BARE],
    ids=["list", "help", "uninstrumented"],
)
def test_a_closed_output_pipe_is_no_error(command: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = printing_to(closed, command)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_is_no_terminal(closed: str) -> None:
    done = waiting.done("sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-m", "gpudash")
    said = "" if closed == "2>&-" else "gpudash: the dashboard needs a terminal"
    assert (done.returncode, done.stderr.partition(";")[0]) == (2, said)
