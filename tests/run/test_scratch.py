"""A start removes what killed processes of this user have left, and nothing else."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpudash.run import scratch


@pytest.fixture
def folder(short_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(short_path))
    return short_path


@pytest.fixture(scope="module")
def ended_pid():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def left_by(pid, folder):
    """A directory as a process leaves it that is killed."""
    directory = folder / f"gpudash-{pid}-abcd_123"
    (directory / "pymp-12345678").mkdir(parents=True)
    (directory / "pymp-12345678" / "listener-12345678").touch()
    return directory


def test_the_directory_names_the_process_that_made_it(folder):
    with scratch.make() as made:
        assert Path(made).parent == folder
        assert Path(made).name.startswith(f"gpudash-{os.getpid()}-")
    assert not list(folder.iterdir())


def test_what_a_killed_process_has_left_is_removed(folder, ended_pid):
    left_by(ended_pid, folder)
    scratch.make().cleanup()
    assert not list(folder.iterdir())


def test_what_a_living_process_uses_stays(folder):
    there = left_by(os.getppid(), folder)
    scratch.make().cleanup()
    assert list(there.rglob("listener-*"))


def test_what_belongs_to_another_user_stays(folder, ended_pid, monkeypatch):
    there = left_by(ended_pid, folder)
    monkeypatch.setattr(os, "geteuid", lambda: there.stat().st_uid + 1)
    scratch.make().cleanup()
    assert there.exists()


@pytest.mark.parametrize("name", ["gpudash-{pid}", "gpudash-{pid}-notes", "gpudash-old-abcd_123"])
def test_what_has_another_kind_of_name_stays(folder, ended_pid, name):
    there = folder / name.format(pid=ended_pid)
    there.mkdir()
    scratch.make().cleanup()
    assert there.exists()


def test_a_link_is_not_followed(folder, ended_pid):
    (folder / "precious").mkdir()
    (folder / "precious" / "file").touch()
    (folder / f"gpudash-{ended_pid}-abcd_123").symlink_to(folder / "precious")
    scratch.make().cleanup()
    assert (folder / "precious" / "file").exists()


def test_a_socket_two_names_further_down_has_room(short_path, monkeypatch):
    folder = short_path / ("x" * (scratch.LONGEST_FOLDER - len(str(short_path)) - 1))
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(os, "getpid", lambda: 4194304)  # Linux has no larger one
    with scratch.make() as made:
        assert Path(made).parent == folder
        assert len(os.fsencode(f"{made}/pymp-12345678/listener-12345678")) <= 107
