"""A recording read at once ends as a replay of it ends."""

import pytest

from gpudash.protocol.envelope import Envelope
from gpudash.protocol.readings import GpuReading
from gpudash.protocol.session import Notice
from gpudash.recording.log import line_of
from gpudash.run.replay import AT_ONCE
from gpudash.run.replayed import replayed
from gpudash.views.time_breakdown import TimeBreakdown
from tests.compare.test_runs import OFF, ON, recorded
from tests.lives import failed
from tests.recording import test_log
from tests.scripted_run import BEGAN_S
from tests.sinks.exporting import h200


def with_messages(path, *bodies):
    """Put messages of a log before its rows."""
    lines = path.read_bytes().splitlines(keepends=True)
    said = [
        line_of(Envelope(source="session", seq=number, sent_s=BEGAN_S + 0.1, body=body))
        for number, body in enumerate(bodies)
    ]
    path.write_bytes(b"".join([*lines[:2], *said, *lines[2:]]))
    return path


@pytest.mark.parametrize("named", ["run.csv", "run.jsonl"])
def test_a_recording_is_read_to_its_end(tmp_path, named):
    recorded(tmp_path / "run.csv", (OFF, 50, 100), (ON, 50, 120))
    run = replayed(tmp_path / named)
    assert run.snapshot.total_steps == pytest.approx(50 * 220, rel=0.01)
    assert run.snapshot.elapsed_s == 50.0
    assert run.steps_per_s == pytest.approx(220, rel=0.01)
    assert (run.name, run.refused) == (named, 0)
    assert run.metadata.complete
    assert run.process.device == run.snapshot.device


def test_a_log_of_many_messages_before_the_first_row_is_read_to_its_end(tmp_path):
    recorded(tmp_path / "run.csv", (OFF, 50, 100))
    readings = [
        GpuReading(at_s=BEGAN_S + 0.1, index=0, uuid="GPU-1111", name="H200")
        for _ in range(3 * AT_ONCE)
    ]
    run = replayed(with_messages(tmp_path / "run.jsonl", *readings))
    assert run.snapshot.elapsed_s == 25.0


def test_the_runs_own_time_breakdown_is_kept_or_else_folded(tmp_path):
    log = test_log.recorded(tmp_path)
    assert replayed(log).account == TimeBreakdown(wall_s=9.0, phases_s=9.0)
    (tmp_path / "run.json").unlink()
    assert 0 < replayed(log).account.wall_s < 9


def test_failures_and_notices_are_kept(tmp_path):
    recorded(tmp_path / "run.csv", (OFF, 50, 100))
    end = failed(BEGAN_S + 0.1, "it broke")
    log = with_messages(tmp_path / "run.jsonl", end, Notice(text="the disk is full"))
    run = replayed(log)
    assert [(round(one.at_s, 3), one.sentence) for one in run.failures] == [(0.1, "it broke")]
    assert run.notices == ("the disk is full",)


def test_a_recorded_setting_has_its_joules_of_a_sample(tmp_path):
    found = replayed(h200(tmp_path)).snapshot.results[0]
    assert 100 < found.energy.joules * found.samples_per_s < 700  # an H200's
    assert found.energy.within_j < found.energy.joules / 20
