"""Compiled code outlives a run in the user's cache, or where the user wants it."""

import os
import sys
import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.waiting import done
from workloads import cache

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(VARIABLE, "")  # and so it is taken back at the end
    return tmp_path


def test_compiled_code_lies_in_the_users_cache(home: Path) -> None:
    cache.keep_compiled_code()
    assert os.environ[VARIABLE] == str(home / ".cache/gpudash/inductor")
    assert Path(os.environ[VARIABLE]).is_dir()


def test_the_place_that_the_user_has_chosen_stays(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "/elsewhere")
    cache.keep_compiled_code()
    assert os.environ[VARIABLE] == "/elsewhere"
    assert not list(home.iterdir())


@pytest.mark.parametrize("obstacle", ["a file", "no permission", "no home"])
def test_where_nothing_can_be_kept_torch_chooses(
    obstacle: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if obstacle == "a file":
        (home / ".cache").touch()
    elif obstacle == "no permission":
        monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    else:
        monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError))
    cache.keep_compiled_code()
    assert not os.environ[VARIABLE]


def test_what_compilers_keep_for_a_moment_goes_with_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, scratch = tempfile.gettempdir(), tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", usual)
    monkeypatch.setattr(tempfile, "tempdir", None)
    cache.keep_compiled_code(str(scratch))
    compiler = "import tempfile; print(tempfile.gettempdir())"
    assert done(sys.executable, "-c", compiler).stdout == f"{scratch}\n"
    assert tempfile.gettempdir() == usual  # as torch keeps precompiled headers there
