"""A start removes the directories of this user's killed processes, and nothing else."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from gpudash.run import child
from gpudash.run.child import Scratch

OWNER = """
import time
from gpudash.run.child import Scratch
made = Scratch()
print(made.name, flush=True)
time.sleep(600)
"""


@pytest.fixture
def owner(temporary):
    """Another process with a directory; the directory holds a socket's name."""
    command, where = [sys.executable, "-c", OWNER], os.environ | {"TMPDIR": str(temporary)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=where)
    process.directory = Path(process.stdout.readline().strip())
    (process.directory / "pymp-12345678").mkdir()
    (process.directory / "pymp-12345678" / "listener-12345678").touch()
    yield process
    process.kill()
    process.communicate()


def left_behind(folder, name="gpudash-abcd_123.s"):
    """The directory of a killed process."""
    directory = folder / name
    (directory / "pymp-12345678").mkdir(parents=True)
    return directory


def test_the_directory_exists_until_cleanup(temporary):
    made = Scratch()
    assert Path(made.name).parent == temporary
    Scratch().cleanup()  # this process's own stays
    assert Path(made.name).exists()
    made.cleanup()
    made.cleanup()
    assert not list(temporary.iterdir())


def test_directories_in_use_stay_and_those_of_killed_processes_are_removed(temporary, owner):
    Scratch().cleanup()
    assert list(owner.directory.rglob("listener-*"))
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    Scratch().cleanup()
    assert not list(temporary.iterdir())


def test_a_directory_removed_before_its_lock_is_created_again(temporary, monkeypatch):
    real, removed = child.fcntl.flock, []

    def late(fd, operation):
        if not removed:
            removed.extend(temporary.iterdir())
            removed[0].rmdir()
        real(fd, operation)

    monkeypatch.setattr(child.fcntl, "flock", late)
    made = Scratch()
    assert Path(made.name).exists()
    assert Path(made.name) not in removed
    made.cleanup()


def test_a_file_system_without_locks_will_do_and_nothing_is_removed_there(temporary, monkeypatch):
    there = left_behind(temporary)
    monkeypatch.setattr(child.fcntl, "flock", Mock(side_effect=OSError(95, "not supported")))
    made = Scratch()
    assert Path(made.name).exists()
    made.cleanup()
    assert there.exists()


NAME = "gpudash-abcd_123.s"


@pytest.mark.parametrize(
    ("name", "of_another"),
    [
        (NAME, 1),
        *((name, 0) for name in ("gpudash", "gpudash-notes.s", "gpudash-projects", "other.s")),
    ],
)
def test_another_users_directory_and_those_of_other_names_stay(
    temporary, monkeypatch, name, of_another
):
    there = left_behind(temporary, name)
    monkeypatch.setattr(os, "geteuid", lambda: there.stat().st_uid + of_another)
    Scratch().cleanup()
    assert there.exists()


def test_a_link_is_not_followed(temporary):
    (temporary / "precious").mkdir()
    (temporary / "precious" / "file").touch()
    (temporary / "gpudash-abcd_123.s").symlink_to(temporary / "precious")
    Scratch().cleanup()
    assert (temporary / "precious" / "file").exists()


def test_a_socket_two_names_further_down_has_room(short_path, monkeypatch):
    folder = short_path / ("x" * (child.LONGEST_FOLDER - len(str(short_path)) - 1))
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    made = Scratch()
    assert Path(made.name).parent == folder
    assert len(os.fsencode(f"{made.name}/pymp-12345678/listener-12345678")) <= 107
    made.cleanup()
