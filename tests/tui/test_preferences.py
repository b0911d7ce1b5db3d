"""Preferences saved between runs, also where they cannot be saved."""

import pytest

from gpudash.tui import preferences
from gpudash.tui.preferences import Preferences

CHOSEN = Preferences(theme="nord", pane="log", starts_s={"encdec cpu": 3.1})


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_what_was_saved_is_there_the_next_time():
    preferences.save(CHOSEN).join()
    assert preferences.load() == CHOSEN


def test_the_first_time_nothing_is_remembered():
    assert preferences.load() == Preferences()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"theme": 3}',
        b'{"theme": "no',
        b'{"theme": "\xff"}',
        b'{"a":' + b"[" * 100_000,
    ],
)
def test_a_broken_file_counts_as_none(home, content):
    preferences.save(CHOSEN).join()
    (home / "gpudash" / "preferences.json").write_bytes(content)
    assert preferences.load() == Preferences()


def test_what_a_later_version_remembers_is_passed_over(home):
    preferences.save(CHOSEN).join()
    file = home / "gpudash" / "preferences.json"
    file.write_bytes(file.read_bytes().replace(b"{", b'{"later": 1, ', 1))
    assert preferences.load() == CHOSEN


def test_where_nothing_can_be_written_nothing_fails(home):
    (home / "gpudash").write_text("in the folder's place")
    preferences.save(CHOSEN).join()
    assert preferences.load() == Preferences()


def test_nothing_but_the_file_is_left(home):
    for _ in range(2):
        preferences.save(CHOSEN).join()
    assert [file.name for file in (home / "gpudash").iterdir()] == ["preferences.json"]


def test_a_file_that_cannot_be_replaced_leaves_none_beside_it(home):
    (home / "gpudash" / "preferences.json").mkdir(parents=True)
    preferences.save(CHOSEN).join()
    assert [file.name for file in (home / "gpudash").iterdir()] == ["preferences.json"]
