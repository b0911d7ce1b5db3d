"""A file of the user's is as before, or as it is to be; never half of it."""

import os
import stat
from pathlib import Path

import pytest

from gpudash.output_file import replace_file
from tests.recording.test_csv_format import FullDisk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "pyproject.toml"
    found.write_bytes(b"precious\n")
    return found


def test_on_a_full_disk_the_file_stays_and_nothing_is_left(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.write", FullDisk(room=4))
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new and longer\n")
    assert path.read_bytes() == b"precious\n"
    assert [*path.parent.iterdir()] == [path]


def test_permissions_and_owner_stay(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.chmod(0o640)
    owners = []
    monkeypatch.setattr("os.fchown", lambda _fd, *owner: owners.append(owner))
    replace_file(path, b"new\n")
    assert path.read_bytes() == b"new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert owners == [(path.stat().st_uid, path.stat().st_gid)]


def test_a_link_stays_a_link_to_the_file_that_is_written(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path.name)
    replace_file(link, b"new\n")
    assert link.is_symlink()
    assert path.read_bytes() == b"new\n"


def test_a_new_file_is_made(tmp_path: Path) -> None:
    replace_file(tmp_path / "new", b"new\n")
    assert (tmp_path / "new").read_bytes() == b"new\n"


@pytest.mark.timeout(60)
def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device"):
        replace_file(tmp_path / "pipe", b"new\n")
    assert [one.name for one in tmp_path.iterdir()] == ["pipe"]


def test_a_device_is_written_and_stays(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/null")
    replace_file(tmp_path / "link", b"new\n")
    assert (tmp_path / "link").readlink() == Path("/dev/null")
