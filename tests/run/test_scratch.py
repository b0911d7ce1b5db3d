"""A start removes what killed processes of this user have left, and nothing else."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpudash.run import scratch
from gpudash.run.scratch import Scratch

OWNER = """
import time
from gpudash.run.scratch import Scratch
made = Scratch()
print(made.name, flush=True)
time.sleep(600)
"""


@pytest.fixture
def folder(short_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(short_path))
    return short_path


@pytest.fixture
def owner(folder):
    """Another process that has made one; its directory holds a socket's name."""
    command, where = [sys.executable, "-c", OWNER], os.environ | {"TMPDIR": str(folder)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=where)
    assert process.stdout
    process.directory = Path(process.stdout.readline().strip())
    (process.directory / "pymp-12345678").mkdir()
    (process.directory / "pymp-12345678" / "listener-12345678").touch()
    yield process
    process.kill()
    process.communicate()


def left_behind(folder, name="gpudash-abcd_123.s"):
    """A directory as a process leaves it that is killed."""
    directory = folder / name
    (directory / "pymp-12345678").mkdir(parents=True)
    return directory


def test_it_is_there_until_it_is_cleaned_up(folder):
    made = Scratch()
    assert Path(made.name).parent == folder
    made.cleanup()
    made.cleanup()
    assert not list(folder.iterdir())


def test_what_a_living_process_uses_stays_and_what_a_killed_one_left_is_removed(folder, owner):
    Scratch().cleanup()
    assert list(owner.directory.rglob("listener-*"))
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    Scratch().cleanup()
    assert not list(folder.iterdir())


def test_what_this_process_uses_itself_stays(folder):
    first = Scratch()
    Scratch().cleanup()
    assert Path(first.name).exists()
    first.cleanup()


def test_one_that_is_removed_before_it_is_locked_is_made_anew(folder, monkeypatch):
    real, removed = scratch.fcntl.flock, []

    def late(fd, operation):
        if not removed:
            removed.extend(folder.iterdir())
            removed[0].rmdir()
        real(fd, operation)

    monkeypatch.setattr(scratch.fcntl, "flock", late)
    made = Scratch()
    assert Path(made.name).exists()
    assert Path(made.name) not in removed
    made.cleanup()


def test_a_file_system_without_locks_will_do_and_nothing_is_removed_there(folder, monkeypatch):
    def refuse(_fd, _operation):
        raise OSError(95, "Operation not supported")

    there = left_behind(folder)
    monkeypatch.setattr(scratch.fcntl, "flock", refuse)
    made = Scratch()
    assert Path(made.name).exists()
    made.cleanup()
    assert there.exists()


def test_what_belongs_to_another_user_stays(folder, monkeypatch):
    there = left_behind(folder)
    monkeypatch.setattr(os, "geteuid", lambda: there.stat().st_uid + 1)
    Scratch().cleanup()
    assert there.exists()


@pytest.mark.parametrize("name", ["gpudash", "gpudash-notes.s", "gpudash-projects", "other.s"])
def test_what_has_another_kind_of_name_stays(folder, name):
    there = left_behind(folder, name)
    Scratch().cleanup()
    assert there.exists()


def test_a_link_is_not_followed(folder):
    (folder / "precious").mkdir()
    (folder / "precious" / "file").touch()
    (folder / "gpudash-abcd_123.s").symlink_to(folder / "precious")
    Scratch().cleanup()
    assert (folder / "precious" / "file").exists()


def test_a_socket_two_names_further_down_has_room(short_path, monkeypatch):
    folder = short_path / ("x" * (scratch.LONGEST_FOLDER - len(str(short_path)) - 1))
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    made = Scratch()
    assert Path(made.name).parent == folder
    assert len(os.fsencode(f"{made.name}/pymp-12345678/listener-12345678")) <= 107
    made.cleanup()
