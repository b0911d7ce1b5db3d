"""Where gpudash's own words end and those of the user's command begin."""

from pathlib import Path

import pytest

from gpudash.cli.main import parse
from gpudash.errors import UsageError
from tests.workloads.own_files import LAZY

VERBS = {
    "ab": ["--lever", "a=1,2"],
    "profile": [],
    "sweep": ["--preset", "encdec"],
    "tune": [],
    "why": [],
}
"""The verbs that take a workload or a command, each with what it needs."""


@pytest.fixture(autouse=True)
def _two_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(LAZY)
    Path("train.py").write_text("raise AssertionError('nobody asked to run it')\n")


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["run", "train.py"], ["train.py"]),
        (["run", "train.py", "--record", "x", "-q"], ["train.py", "--record", "x", "-q"]),
        (["run", "--record", "r.csv", "train.py", "r"], ["train.py", "r"]),
        (["run", "--record=r.csv", "train.py"], ["train.py"]),
        (["run", "--rec", "r.csv", "train.py"], ["train.py"]),
        (["run", "-q", "--watch", "-m", "pkg", "-q"], ["-m", "pkg", "-q"]),
        (["run", "--watch", "--", "torchrun", "--", "x"], ["--", "torchrun", "--", "x"]),
        (["run", "--python", "python3", "-m", "train"], ["-m", "train"]),
        (["run", "train.py", "x" * 5000], ["train.py", "x" * 5000]),
    ],
)
def test_all_words_after_the_commands_name_are_its_own(words, command):
    assert parse(words)[1].user_command == command


def test_gpudashs_words_before_the_command_are_checked():
    _, arguments = parse(["run", "--interval", "2", "--watch", "train.py", "--interval", "9"])
    assert arguments.interval == 2
    with pytest.raises(UsageError, match="unknown option '--watsh'"):
        parse(["run", "--watsh", "train.py"])
    with pytest.raises(UsageError, match="--python needs a value: --python PATH"):
        parse(["run", "--python", "-m", "train"])


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "command",
    [
        ["train.py", "--seconds", "3", "-q"],
        ["nowhere.py", "--json"],
        ["tr\udcff.py", "--json"],
        ["-m", "pkg", "--json"],
        ["python", "train.py", "--json"],
        ["/usr/bin/python3.11", "-m", "pkg"],
        ["--", "torchrun", "mine.py"],
        ["--", "mine.py", "--json"],
    ],
    ids=" ".join,
)
def test_a_verb_that_measures_takes_the_same_command(verb, command):
    assert parse([verb, *VERBS[verb], "-q", *command])[1].user_command == command


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("workload", ["encdec", "mine.py", "mine.py:linear", "train.py:other"])
def test_options_may_follow_a_workload(verb, workload):
    _, arguments = parse([verb, workload, "--device", "cpu", *VERBS[verb], "-q"])
    assert (arguments.workload, arguments.user_command) == (workload, [])
    assert (arguments.device, arguments.quiet) == ("cpu", True)


def test_after_a_workload_a_command_is_one_too_many():
    with pytest.raises(UsageError, match=r"'train.py' is one word too many"):
        parse(["why", "encdec", "train.py"])
