"""`next` in an answer: a command that can be typed as it is."""

import shlex

import pytest

from gpudash.cli.following import after_lever, after_programs, after_tune, more_time, untried
from gpudash.cli.main import parse
from gpudash.compare.paired_t import Estimate
from gpudash.protocol.answer import Try
from gpudash.run.attempts import Attempt

FASTER, SLOWER, UNSURE = (
    Estimate(pairs=8, change=at, low=at - 0.02, high=at + 0.02) for at in (0.1, -0.1, 0.015)
)
LEVER = "gpudash ab --json --lever num_workers=2,8 train.py -n 3"
COMMANDS = "gpudash ab --json --budget=60 --a 'train.py' --b 'train.py --fused'"
VERSIONS = "gpudash ab --versions main,HEAD --starts 3 -m train"


def asked(command):
    words = shlex.split(command)
    arguments = parse(words[1:])[1]
    arguments.starts = arguments.starts or (1 if arguments.lever else None)
    return arguments


@pytest.mark.parametrize(
    ("command", "found", "holds", "following"),
    [
        (LEVER, FASTER, True, "gpudash show num_workers=8 --patch train.py"),
        (LEVER, FASTER, None, "gpudash show num_workers=8 --patch train.py"),
        ("gpudash ab --lever gc=auto,rare -m train", FASTER, None, "gpudash show gc=rare"),
        (LEVER, FASTER, False, LEVER.replace("ab", "ab --starts 4")),
        (LEVER, UNSURE, None, LEVER.replace("ab", "ab --starts 4")),
        (LEVER, SLOWER, True, "gpudash why train.py -n 3"),
        (COMMANDS, FASTER, True, "gpudash why -- train.py --fused"),
        (COMMANDS, SLOWER, True, "gpudash why -- train.py"),
        (
            COMMANDS,
            UNSURE,
            None,
            "gpudash ab --budget 120 --json --a train.py --b 'train.py --fused'",
        ),
        (VERSIONS, UNSURE, None, "gpudash ab --starts 6 --versions main,HEAD -m train"),
        (VERSIONS, FASTER, True, "gpudash why -m train"),
    ],
)
def test_an_ab_is_followed_by_what_keeps_asks_or_measures_more(command, found, holds, following):
    after = after_lever if "--lever" in command else after_programs
    said = after(found, asked(command), holds=holds)
    assert said == following
    parse(shlex.split(said)[1:])


def test_a_tune_is_followed_by_what_it_has_proven_or_more_time():
    arguments = parse(["tune", "--budget", "30", "train.py"])[1]
    assert after_tune({"gc": "rare"}, arguments, ran_out=True) == "gpudash show gc=rare"
    assert after_tune({}, arguments, ran_out=True) == "gpudash tune --budget 60 train.py"
    assert after_tune({}, arguments, ran_out=False) == "gpudash why train.py"


TRIES = [Try("num_workers", "8", "", before="2"), Try("compile", "on", "", before="off")]


@pytest.mark.parametrize(
    ("tried", "left"),
    [
        ({"a": "2", "b": "8", "verdict": "slower"}, ["compile"]),
        ({"a": "2", "b": "4", "verdict": "slower"}, ["num_workers", "compile"]),
        ({"a": "2", "b": "4", "verdict": "faster"}, ["compile"]),
        ({"a": "1", "b": "2", "verdict": "faster"}, ["num_workers", "compile"]),
    ],
    ids=["it", "another value", "another value, to be kept first", "one that is kept"],
)
def test_what_was_tried_is_not_proposed_again(tried, left):
    attempt = Attempt(when="", gpudash="0", command="", told="", lever="num_workers", **tried)
    assert [one.lever for one in untried(TRIES, [attempt])] == left


def test_a_gate_that_does_not_know_is_followed_by_more_time():
    words = ("--json", "--junit", "new.xml", "main", "--", "train.py", "-n", "3")
    arguments = parse(["gate", *words])[1]
    assert more_time(arguments) == "gpudash gate --budget 1200 --json main -- train.py -n 3"
