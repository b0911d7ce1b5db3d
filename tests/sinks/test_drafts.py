import os
import stat

import pytest

from gpudash.errors import RecordingError
from gpudash.recording.files import Output
from tests.recording.test_csv_format import FullDisk, recording


def test_an_existing_file_is_kept_until_a_draft_takes_its_place(tmp_path):
    path = tmp_path / "run.csv"
    path.write_text("precious\n")
    path.chmod(0o640)
    file = Output(path, draft=True)
    file.append(b"new\n")
    assert path.read_text() == "precious\n"
    file.take_place()
    file.append(b"more\n")
    file.close()
    assert path.read_text() == "new\nmore\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link_to_the_file_that_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    real, link = tmp_path / "far" / "real.csv", tmp_path / "run.csv"
    real.write_text("precious\n")
    link.symlink_to(real)
    file = Output(link, draft=True)
    file.append(b"new\n")
    file.take_place()
    file.close()
    assert link.readlink() == real
    assert real.read_text() == "new\n"


def test_discarding_removes_no_device(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    file = Output(pipe, draft=True)
    file.append(b"new\n")
    file.take_place()
    file.discard()
    assert os.read(reader, 1 << 16) == b"new\n"
    os.close(reader)
    assert pipe.exists()


def test_a_disk_too_full_for_the_header_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("gpudash.recording.files.os.write", FullDisk(room=20))
    with pytest.raises(RecordingError, match="the disk is full"):
        recording(tmp_path / "run.csv")
    assert not list(tmp_path.iterdir())
