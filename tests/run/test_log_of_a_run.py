"""The log of a run suffices to make its files again, even if the log was cut off."""

import json
import subprocess
from pathlib import Path

import msgspec
import pytest

from gpudash.cli.main import main
from gpudash.compare.ab import Question
from gpudash.protocol.commands import Change, Plan
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.readings import GpuReading
from gpudash.protocol.session import ComparisonShown
from gpudash.protocol.training import BlocksEnded, Hello, Printed, Progress, State
from gpudash.recording.log import Closed, LogReader, RowReader
from gpudash.recording.provenance import Metadata
from gpudash.sinks.active import ActiveSinks
from gpudash.sinks.recording import RecordingWriter
from gpudash.views.time_breakdown import TimeBreakdown
from tests import worker_double
from tests.lives import in_process, starting, turns
from tests.run.test_session import SMALL, Begin, begin
from tests.scripted_run import BEGAN_S, Trainer, gpu, host
from tests.sinks.exporting import ORIGIN
from tests.waiting import until

__all__ = ["begin"]
PLAN = Plan(workload="encdec", device="cpu", settings=SMALL)
ROWS = 4
AB = Question(lever="pipelined", a="off", b="on", pairs=2)


def bodies(path: Path) -> list[object]:
    return [item.body for item in LogReader(path) if isinstance(item, Envelope)]


def exported(log: Path) -> dict[str, bytes]:
    """Return the files that an export makes from a log, by suffix."""
    again = log.with_name(f"again-{log.stem}.csv")
    assert main(["export", str(log), "-o", str(again)]) == 0
    return {suffix: again.with_suffix(suffix).read_bytes() for suffix in (".csv", ".json")}


def written(log: Path) -> dict[str, bytes]:
    return {suffix: log.with_suffix(suffix).read_bytes() for suffix in (".csv", ".json")}


def test_csv_and_json_of_an_eventful_run_are_made_again_to_the_byte(
    begin: Begin, tmp_path: Path
) -> None:
    session, screen = begin(tmp_path / "whole.csv")
    screen.until(lambda s: s.recording and s.recording.rows)
    session.change({"batch_size": "4"})
    screen.until(lambda s: s.settings.get("batch_size") == "4" and not s.pending)
    session.compare(AB)
    screen.until(lambda s: s.comparison and s.comparison.verdict)
    session.pause()
    screen.until(lambda s: s.state == "paused")
    session.stop_recording()
    session.begin_sink("recording", tmp_path / "late.csv")  # in mid-run, while it is paused
    session.resume()
    screen.until(lambda s: s.state == "training" and s.recording and s.recording.rows)
    session.restart(PLAN)
    screen.until(lambda s: s.settings.get("batch_size") == "2" and s.total_steps > 5)
    session.close()
    for name in ("whole", "late"):
        log = tmp_path / f"{name}.jsonl"
        assert exported(log) == written(log)
    run_log = bodies(tmp_path / "whole.jsonl")
    kinds = set(map(type, run_log))
    assert {Hello, Change, ComparisonShown, BlocksEnded, Printed, Progress} <= kinds
    assert {"started", "changed", "paused"} <= {name for name, _ in turns(run_log)}
    late = bodies(tmp_path / "late.jsonl")
    kept = [body for body in late if isinstance(body, Plan | State)]
    assert (kept[0].settings, kept[1].workload) == (SMALL, "encdec")
    assert [body.phase for body in kept if isinstance(body, State)] == [
        "paused",
        "training",
        "starting",
        "training",
    ]


@pytest.mark.usefixtures("called_with_double")
@pytest.mark.parametrize(("more", "kind"), [([], list), (["--every-step"], dict)])
def test_the_log_has_every_step_in_columns_or_as_records(
    tmp_path: Path, more: list[str], kind: type
) -> None:
    record = ["--record", str(tmp_path / "run.csv"), *more]
    assert main([*record, "--steps", "30", "--device", "cpu"]) == 0
    log = tmp_path / "run.jsonl"
    steps = [one.step for body in bodies(log) if isinstance(body, Progress) for one in body.steps]
    assert steps == list(range(1, 31))
    lines = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    reports = [one[4] for one in lines if isinstance(one[4], list) or one[4]["type"] == "Progress"]
    assert {type(one) for one in reports} == {kind}
    assert exported(log) == written(log)


def test_a_run_that_is_killed_leaves_a_log_up_to_its_last_row(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    command = worker_double.gpudash("--interval", "0.05", "--device", "cpu", "--record", str(path))
    with subprocess.Popen(
        command, env=worker_double.environment(), stderr=subprocess.DEVNULL
    ) as running:
        until(lambda: path.exists() and path.read_bytes().count(b"\n") > ROWS)
        running.kill()
    log = path.with_suffix(".jsonl")
    assert not isinstance(list(RowReader(log))[-1], Closed)
    rows = path.read_bytes().rpartition(b"\n")[0]  # but for one that was being written
    assert exported(log)[".csv"].startswith(rows)  # the log goes first


# ── the first messages of a recording begun in mid-run ─────────────────────────────────────


class RunLog:
    """A run's messages, and its recordings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recordings = ActiveSinks(tell=lambda error: pytest.fail(str(error)))
        self.run = Trainer()
        self.seq = 0

    def take(self, *items: object, source: str = "training", rank: int = 0) -> None:
        for body in items:
            self.seq += 1
            self.recordings.take(
                Envelope(source=source, rank=rank, seq=self.seq, sent_s=self.run.now_s, body=body)
            )

    def begun(self) -> list[object]:
        """Return the first messages of a recording begun now."""
        writer = RecordingWriter(self.folder / f"{self.seq}.csv", ORIGIN)
        self.recordings.begin("recording", str(writer.path), writer, ORIGIN, TimeBreakdown())
        return bodies(writer.log_path)


@pytest.fixture
def run_log(tmp_path: Path) -> RunLog:
    return RunLog(tmp_path)


def test_a_recording_begins_with_what_still_holds(run_log: RunLog) -> None:
    run_log.take(PLAN, source="session")
    run_log.take(Hello(), run_log.run.start(), run_log.run.change(batch_size="4"))
    run_log.take(*run_log.run.steps(3), run_log.run.change(pipelined="on"))
    pause = run_log.run.pause()
    run_log.take(pause)
    assert run_log.begun() == [PLAN, Hello(), pause]
    assert (pause.settings["batch_size"], pause.settings["pipelined"]) == ("4", "on")
    resume = run_log.run.resume()
    run_log.take(resume)
    assert run_log.begun() == [PLAN, Hello(), resume]
    again = msgspec.structs.replace(PLAN, workload="augment")
    restart = starting(run_log.run.now_s, again)
    run_log.take(restart, again, source="session")
    assert run_log.begun() == [restart, again]
    start = run_log.run.start()
    run_log.take(Hello(), start)
    assert run_log.begun() == [again, Hello(), start]


def test_a_recording_begins_with_the_state_of_every_rank(run_log: RunLog, tmp_path: Path) -> None:
    first = run_log.run.start()
    other = in_process(first, versions={"torch": "0.1"})
    run_log.take(first)
    run_log.take(other, rank=1)
    assert run_log.begun() == [first, other]
    described = msgspec.json.decode((tmp_path / "2.json").read_bytes(), type=Metadata)
    assert described.versions["torch"] == first.process.versions["torch"]
    gone = msgspec.structs.replace(other, phase="parted")
    run_log.take(gone, rank=1)
    assert run_log.begun() == [first, gone]


def test_a_recording_begins_with_the_newest_reading_of_each_gpu(
    run_log: RunLog, tmp_path: Path
) -> None:
    newest, other = gpu(BEGAN_S + 1), gpu(BEGAN_S + 1, uuid="GPU-2222", index=1)
    run_log.take(gpu(BEGAN_S), other, newest, host(BEGAN_S), source="telemetry")
    assert run_log.begun() == [newest, other]
    later = [gpu(BEGAN_S + 2), gpu(BEGAN_S + 3, uuid="GPU-2222")]
    run_log.take(*later, source="telemetry")
    readings = [body for body in bodies(tmp_path / "4.jsonl") if isinstance(body, GpuReading)]
    assert readings == [newest, other, *later]
