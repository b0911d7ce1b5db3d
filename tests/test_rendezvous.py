"""Directories of runs: private, and none that another user has made stands in the way."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from gpudash import rendezvous
from gpudash.run import keeper, runs


@pytest.fixture(params=["XDG_RUNTIME_DIR", "TMPDIR"])
def folder(request, monkeypatch, short_path):
    """The folder in which directories of runs are made."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    if request.param == "TMPDIR":
        monkeypatch.setattr(tempfile, "tempdir", str(short_path))
    else:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
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


def test_a_socket_fits_into_every_directory(monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # removed again
        deep = Path(short) / ("x" * (rendezvous.LONGEST_FOLDER - len(short) - 1))
        deep.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(deep))
        place = rendezvous.begin()
        assert place.path.parent == deep
        assert len(os.fsencode(place.socket(2**22))) <= 107
