"""The description of a user's own workload, made by a child process that runs the user's code."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from gpudash.protocol.training import Description, Unfit
from gpudash.reference_levers import from_record, record_of
from gpudash.run import child
from gpudash.run.own_workload import find
from tests.workloads.own_files import LAZY
from workloads import CATALOGUE
from workloads.levers import Lever, LeverError

LEVERS = {lever.name: lever for entry in CATALOGUE.values() for lever in entry.levers}


@pytest.fixture(autouse=True)
def folder(own_catalogue: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("lever", LEVERS.values(), ids=LEVERS)
def test_a_lever_survives_being_described(lever: Lever) -> None:
    record = record_of(lever)
    again = from_record(msgspec.json.decode(msgspec.json.encode(record), type=type(record)))
    assert type(again) is type(lever)
    assert vars(again) == vars(lever)


def test_output_of_the_file_is_not_in_the_description() -> None:
    Path("mine.py").write_text(f"import os\nprint('hello')\nos.system('echo hello')\n{LAZY}")
    done = child.run("-m", "gpudash.worker.describe", "mine.py")
    assert msgspec.json.decode(done.stdout, type=Description).summary == "Fit a sum."
    assert done.stderr.count("hello") == 2


def test_a_thread_of_the_users_does_not_delay_it() -> None:
    sleeper = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n"
    Path("mine.py").write_text(sleeper + LAZY)
    assert find("mine.py").summary == "Fit a sum."


def test_an_error_is_the_description() -> None:
    done = child.run("-m", "gpudash.worker.describe", "mine.py")
    expected = Unfit(why="mine.py: No such file or directory")
    assert msgspec.json.decode(done.stdout, type=Description) == expected


def test_a_workload_once_found_is_in_the_catalogue_as_it_is_in_its_own_process(monkeypatch) -> None:
    Path("mine.py").write_text(LAZY)
    entry = find("mine.py")
    assert CATALOGUE["mine.py"] is entry
    own = {lever.name: lever for lever in entry.levers}
    assert (own["width"].values, own["kind"].default_text) == (("8", "16"), "a")
    monkeypatch.setattr(subprocess, "run", None)  # no second child
    assert find("mine.py") is entry


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import os\nos._exit(3)\n", "mine.py: Python ended with 3 while importing it"),
        ("import os\nos.abort()\n", "mine.py: Python ended with -6 while importing it"),
        ("raise ValueError('\x1b[31mred')\n", "ValueError: "),
        ("import os\nos.write(2, b'\\xff')\nos._exit(3)\n", "Python ended with 3"),
    ],
)
def test_a_file_that_ends_its_process_is_described_in_one_line(text: str, why: str) -> None:
    Path("mine.py").write_text(f"from gpudash import workload\n{text}")
    with pytest.raises(LeverError) as refused:
        find("mine.py")
    assert why in str(refused.value)
    assert str(refused.value).isprintable()


def test_an_unknown_name_starts_no_child(monkeypatch) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    with pytest.raises(LeverError, match=r"unknown workload 'encdek'.*did you mean encdec\?"):
        find("encdek")
