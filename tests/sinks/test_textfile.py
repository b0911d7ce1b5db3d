"""The file of the node exporter's textfile collector: whole at every moment, and nobody else's."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpudash.errors import ExistsError, RecordingError, UsageError
from gpudash.sinks.textfile import EVERY_S, Textfile
from tests.lives import finished
from tests.lives import said as told
from tests.scripted_run import BEGAN_S, started
from tests.sinks.exporting import ORIGIN, row


def steps(path: Path) -> float | None:
    families = {one.name: one for one in text_string_to_metric_families(path.read_text())}
    return families["gpudash_steps"].samples[0].value if "gpudash_steps" in families else None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gpudash.prom"


def test_the_file_is_there_at_once_renewed_now_and_then_and_at_the_end(path: Path) -> None:
    sink = Textfile(str(path), ORIGIN)
    assert steps(path) is None
    seen = set()
    rows = int(EVERY_S / 0.5) * 3 + 1
    for number in range(rows):
        sink.take(row(number))
        seen.add(steps(path))
    assert 3 <= len(seen) <= 5
    sink.close(None)
    assert steps(path) == 5 * rows


def test_the_last_file_says_how_the_training_ended_or_that_nobody_watches_it(path: Path) -> None:
    for more, said in (((), "unwatched"), ((finished(BEGAN_S + 1),), "finished")):
        sink, state = Textfile(str(path), ORIGIN), started(BEGAN_S)
        sink.take(told(state))
        for one in more:
            sink.take(told(one.after(state)))
        sink.close(None)
        assert f'state="{said}"' in path.read_text()
        assert 'state="training"' not in path.read_text()


def test_a_reader_never_sees_half_of_it_nor_a_draft(path: Path) -> None:
    sink = Textfile(str(path), ORIGIN)
    inode = path.stat().st_ino
    with path.open() as before:
        sink.take(row(0))
        sink.close(None)
        assert "gpudash_steps" not in before.read()
    assert path.stat().st_ino != inode
    assert list(path.parent.iterdir()) == [path]


def test_the_file_of_a_run_before_is_replaced_and_another_one_is_not(path: Path) -> None:
    Textfile(str(path), ORIGIN).close(None)
    Textfile(str(path), ORIGIN).close(None)
    path.write_text("node_load1 0.5\n")
    with pytest.raises(ExistsError):
        Textfile(str(path), ORIGIN)
    assert path.read_text() == "node_load1 0.5\n"
    Textfile(str(path), ORIGIN, force=True)
    assert path.read_text() != "node_load1 0.5\n"


def test_a_name_that_the_node_exporter_does_not_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gpudash\.txt is not valid; valid: .* ends in \.prom"):
        Textfile(str(tmp_path / "gpudash.txt"), ORIGIN)


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"cannot write .*gpudash\.prom: no such file or dir"):
        Textfile(str(tmp_path / "none" / "gpudash.prom"), ORIGIN)


def test_a_folder_that_goes_away_ends_it_with_one_line(path: Path) -> None:
    folder = path.parent / "here"
    folder.mkdir()
    sink = Textfile(str(folder / "gpudash.prom"), ORIGIN)
    folder.rename(path.parent / "there")
    with pytest.raises(RecordingError, match="cannot write"):
        sink.close(None)
    assert sink.failed
