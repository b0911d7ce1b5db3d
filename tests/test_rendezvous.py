"""Directories of runs: private, and none that another user has made stands in the way."""

import os
import platform
import socket
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from gpudash import rendezvous
from gpudash.errors import UsageError
from gpudash.run import keeper, runs
from tests.waiting import done


@pytest.fixture
def folder(monkeypatch, short_path):
    """The folder in which directories of runs are made."""
    monkeypatch.setenv("GPUDASH_RUN_DIR", str(short_path))
    return short_path


def begun():
    """Begin a run whose command is this process."""
    place = rendezvous.begin()
    keeper.write_facts(place.path, name="x", command=["x"], pid=os.getpid(), is_kept=False)
    return place


def test_a_directory_is_this_users_alone(folder):
    about = begun().path.stat()
    assert (about.st_uid, stat.S_IMODE(about.st_mode)) == (os.geteuid(), 0o700)


@pytest.mark.parametrize("name", ["gpudash", f"gpudash-{os.geteuid()}"])
def test_a_name_that_is_taken_prevents_no_run(folder, name):
    (folder / name).mkdir()
    (folder / name).chmod(0o777)
    places = {begun().path, begun().path}
    assert {run.place.path for run in runs.living()} == places


def test_a_directory_that_others_can_write_to_is_not_read(folder):
    begun().path.chmod(0o770)
    assert runs.living() == []


def test_a_directory_of_another_user_is_not_read(folder, monkeypatch):
    place, us = begun(), os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: us + 1)
    assert runs.living() == []
    assert place.path.exists()


def test_a_link_to_a_directory_is_not_followed(folder, tmp_path):
    place = begun()
    place.path.rename(tmp_path / "moved")
    place.path.symlink_to(tmp_path / "moved")
    assert runs.living() == []
    assert (tmp_path / "moved").exists()


def test_a_socket_fits_into_every_directory(monkeypatch, short_path):
    deep = short_path / ("x" * (rendezvous.LONGEST_FOLDER - len(str(short_path)) - 1))
    deep.mkdir(mode=0o700)
    monkeypatch.setenv("GPUDASH_RUN_DIR", str(deep))
    place = runs.begin()
    assert place.path.parent == deep
    assert len(os.fsencode(place.socket(2**22))) <= 107


def test_a_jobs_own_tmpdir_and_a_logins_folder_are_not_where_runs_meet(monkeypatch, short_path):
    monkeypatch.delenv("GPUDASH_RUN_DIR", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    monkeypatch.setattr(tempfile, "tempdir", str(short_path))
    first, *others = rendezvous.folders()
    assert first == Path("/tmp")
    assert others == [short_path]  # runs may lie there where /tmp could not be written
    monkeypatch.setattr(os, "access", lambda path, _mode: str(path) != "/tmp")
    assert rendezvous.folders() == [short_path, Path("/tmp")]


def test_the_directory_is_kept_from_those_who_remove_old_files(folder):
    path = begun().path
    code = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), 6)"
    assert "BlockingIOError" in done(sys.executable, "-c", code, path).stderr


def test_a_run_of_another_machine_that_shares_the_folder_is_neither_ended_nor_removed(
    folder, monkeypatch
):
    monkeypatch.setattr(keeper, "space", lambda: "elsewhere")
    place = begun()
    monkeypatch.undo()
    monkeypatch.setenv("GPUDASH_RUN_DIR", str(folder))
    assert runs.living() == []
    assert place.path.exists()
    assert [one.host for one in runs.elsewhere()] == [platform.node()]


def test_other_users_runs_are_counted_and_not_read(folder):
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    os.chown(begun().path, 65534, 65534)
    mine = begun()
    assert [run.place.path for run in runs.living()] == [mine.path]
    assert rendezvous.of_others() == 1


# ── a folder that the user has chosen ───────────────────────────────────────────────────


def absent(short_path):
    return short_path / "none", "cannot be used: No such file or directory"


def file(short_path):
    (short_path / "file").touch()
    return short_path / "file", "is no folder"


def long(short_path):
    deep = short_path / ("x" * rendezvous.LONGEST_FOLDER)
    deep.mkdir(mode=0o700)
    return deep, f"is longer than sockets allow: {len(str(deep))} bytes of 60"


def open_to_all(short_path):
    (short_path / "open").mkdir()
    (short_path / "open").chmod(0o777)
    return short_path / "open", "is one in which others can replace what is yours"


@pytest.mark.parametrize("make", [absent, file, long, open_to_all])
def test_a_chosen_folder_that_cannot_hold_runs_is_refused(monkeypatch, short_path, make):
    folder, why = make(short_path)
    monkeypatch.setenv("GPUDASH_RUN_DIR", str(folder))
    for asked in (runs.begin, runs.check_folder):
        with pytest.raises(UsageError) as refusal:
            asked()
        assert str(refusal.value).startswith(f"GPUDASH_RUN_DIR: {folder} {why}; valid: ")


def test_one_that_cannot_be_written_is_refused(folder, monkeypatch):
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)  # root may write everywhere
    with pytest.raises(UsageError, match="cannot be written; valid: "):
        runs.begin()


def test_one_of_another_user_is_refused(folder, monkeypatch):
    us = os.geteuid() + 1
    os_stat = folder.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: us)
    if os_stat == 0:
        pytest.skip("root's folder is as good as one's own")
    with pytest.raises(UsageError, match="is another user's; valid: "):
        runs.begin()


def test_one_in_which_all_may_write_their_own_is_taken(short_path, monkeypatch):
    short_path.chmod(0o1777)
    monkeypatch.setenv("GPUDASH_RUN_DIR", str(short_path))
    assert runs.begin().path.parent == short_path


def test_a_file_system_without_sockets_is_refused_and_nothing_left(folder, monkeypatch):
    class Socket(socket.socket):
        def bind(self, _address):
            raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", Socket)
    why = f"{folder} holds no run: sockets cannot be made there: Operation not permitted; valid: "
    with pytest.raises(UsageError, match=why):
        runs.begin()
    assert not list(folder.iterdir())
