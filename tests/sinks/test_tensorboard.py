"""TensorBoard's own reader finds each row's numbers, at their step and time."""

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gpudash.errors import RecordingError
from gpudash.recording.rank_steps import RankSteps
from gpudash.sinks.tensorboard import Tensorboard
from tests.sinks.exporting import BEGAN_UTC, ORIGIN, exported, recorded, row


def read(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return found


def test_a_recording_is_read_row_by_row(tmp_path: Path) -> None:
    exported(recorded(tmp_path), f"tensorboard:{tmp_path / 'runs' / 'first'}")
    found = read(tmp_path / "runs" / "first")
    rates = found.Scalars("step/samples_per_s")
    assert [one.step for one in rates] == [5, 10, 15, 20]
    assert [one.value for one in rates] == [80.0] * 4
    began_s = BEGAN_UTC.timestamp()
    assert [one.wall_time - began_s for one in rates] == pytest.approx([0.5, 1.0, 1.5, 2.0])
    tags = found.Tags()["scalars"]
    assert {"phase/forward_ms", "phase/encode_ms", "GPU 0/power_w", "run/batch_size"} <= set(tags)
    assert found.Scalars("GPU 0/power_w")[0].value == 300.0


def test_a_row_is_read_as_soon_as_it_is_written(tmp_path: Path) -> None:
    sink = Tensorboard(str(tmp_path), ORIGIN)
    sink.take(row(0))
    found = read(tmp_path)
    assert len(found.Scalars("step/steps")) == 1
    sink.take(row(1))
    found.Reload()
    assert len(found.Scalars("step/steps")) == 2
    sink.close(None)


def test_a_curve_of_rates_has_no_0_where_nothing_trains(tmp_path: Path) -> None:
    sink = Tensorboard(str(tmp_path), ORIGIN)
    sink.take(row(0))
    sink.take(row(1, steps=0, samples=0, timed=0, train_s=0.0))
    sink.close(None)
    found = read(tmp_path)
    rates = (found.Scalars(f"step/{name}") for name in ("steps_per_s", "samples_per_s"))
    assert [[one.value for one in each] for each in rates] == [[10.0], [80.0]]
    assert [one.value for one in found.Scalars("step/steps")] == [5.0, 0.0]


def test_each_rank_has_a_group_of_its_own(tmp_path: Path) -> None:
    sink = Tensorboard(str(tmp_path), ORIGIN)
    sink.take(row(0, ranks=(*row(0).ranks, RankSteps(rank=1, step=5, steps=5, samples=24))))
    sink.close(None)
    assert read(tmp_path).Scalars("rank 1 step/samples_per_s")[0].value == 48.0


def test_files_of_others_in_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1.other").write_bytes(b"precious")
    Tensorboard(str(tmp_path), ORIGIN).close(None)
    assert (tmp_path / "events.out.tfevents.1.other").read_bytes() == b"precious"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_in_the_folders_place_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    with pytest.raises(RecordingError, match="cannot write to .*runs: file exists; valid: a fold"):
        Tensorboard(str(tmp_path / "runs"), ORIGIN)
