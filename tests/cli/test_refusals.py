"""A wrong command line gets one line that names the mistake; nothing is started or printed.

Hundreds are made from right ones with one mistake each. They are always the same.
"""

import random
from collections.abc import Iterator

import pytest

from gpudash.cli.main import LONGEST, main
from gpudash.cli.verbs import VERBS, load
from workloads import CATALOGUE

COUNT = 400
RIGHT = (
    "encdec --set precision=bf16 --set pipelined=on --device cpu --steps 20 --record out.csv",
    # batched was called gpu
    "augment --set augment_on=gpu --duration 5 --interval 0.5 --jsonl --batch-size 4",
    "masked_loss --set loss=minmax --seed 3 --rate 2 --once --color never",
    "ab encdec --lever precision=fp32,bf16 --pairs 8 --within 1% --device cpu",
    "ab --lever pipelined=off,on --set channels_last=on --json",
    "sweep encdec --vary pipelined=off,on --vary batch_size=4,8 --steps 10 --rounds 3",
    "sweep --preset masked_loss --device cpu --rounds 4 --markdown table.md",
    "replay run.csv --speed 2 --rate 4",
    "export run.jsonl -o rows.jsonl",
    "list --json",
    "doctor --json",
    "completion bash",
    "help sweep",
)
NAMES = (*VERBS, *CATALOGUE, "bf16", "minmax", "cpu", "bash", "never")
ODD = (
    "a\0b",
    "\x1b[31mred\x1b[0m",
    "\u202eabc",
    "אבג",
    "🦆🦆",
    "",
    " ",
    "x" * 100_000,
    "\udc80",
    "٣",
)
BAD_NUMBERS = ("nan", "inf", "-1", "1e999", "0x10", "many", "1,5", "½")
NUMBERED = (
    "--steps",
    "--duration",
    "--interval",
    "--batch-size",
    "--seed",
    "--rate",
    "--pairs",
    "--rounds",
    "--speed",
)

LEVERS = {"--batch-size": "batch_size", "--seed": "seed"}
"""Options that are short for a lever."""


def mistyped(word: str, dice: random.Random) -> str:
    """Return the word with one mistake that makes it another word."""
    at = dice.randrange(1, len(word))
    made = dice.choice(
        (
            word[:at] + word[at + 1 :],
            word[:at] + dice.choice("qxz") + word[at:],
            word[:at] + dice.choice("qxz") + word[at + 1 :],
            word[: at - 1] + word[at] + word[at - 1] + word[at + 1 :],
        )
    )
    return made if made != word else word + "q"


# each makes a mistake in the word at a position, and returns what the error has to name


def wrong_option(words: list[str], at: int, dice: random.Random) -> str | None:
    right, words[at] = words[at], f"--{mistyped(words[at][2:], dice)}"
    parser = load(words[0] if words[0] in VERBS else "").parser()
    known = (name for action in parser.actions for name in action.option_strings)
    is_short_for_one = any(name.startswith(words[at]) for name in known)
    return None if is_short_for_one else right


def wrong_name(words: list[str], at: int, dice: random.Random) -> str:
    right, words[at] = words[at], mistyped(words[at], dice)
    return right


def wrong_lever(words: list[str], at: int, dice: random.Random) -> str:
    name, values = words[at].split("=")
    words[at] = f"{mistyped(name, dice)}={values}"
    return name


def wrong_value(words: list[str], at: int, _dice: random.Random) -> str:
    words[at] += "q"
    return words[at].split("=")[0]


def no_value(words: list[str], at: int, _dice: random.Random) -> str:
    words[at] = words[at].split("=")[0]
    return words[at]


def wrong_number(words: list[str], at: int, dice: random.Random) -> str:
    words[at + 1] = dice.choice(BAD_NUMBERS)
    return LEVERS.get(words[at], words[at])


def doubled_option(words: list[str], at: int, _dice: random.Random) -> str:
    words += [words[at], f"{words[at + 1]}1"]
    return words[at]


def missing_number(words: list[str], at: int, _dice: random.Random) -> str:
    del words[at + 1]
    return words[at]


def swapped_words(words: list[str], at: int, _dice: random.Random) -> str:
    words[at : at + 2] = reversed(words[at : at + 2])
    return ""


def odd_word(words: list[str], at: int, dice: random.Random) -> str:
    words.insert(at, dice.choice(ODD))
    return ""


MISTAKES = (
    (wrong_option, lambda word: word.startswith("--")),
    (wrong_name, lambda word: word in NAMES),
    (wrong_lever, lambda word: "=" in word),
    (wrong_value, lambda word: "=" in word),
    (no_value, lambda word: "=" in word),
    (wrong_number, lambda word: word in NUMBERED),
    (doubled_option, lambda word: word in NUMBERED),
    (missing_number, lambda word: word in NUMBERED),
    (swapped_words, lambda word: word in NUMBERED),
    (odd_word, lambda _word: True),
)
"""Each mistake, with a function that says in which words it can be made."""


def wrong_lines() -> Iterator[tuple[list[str], str]]:
    """Yield wrong command lines, and what the error has to name."""
    dice = random.Random(15)
    while True:
        words = dice.choice(RIGHT).split()
        mistake, suits = dice.choice(MISTAKES)
        places = [at for at, word in enumerate(words) if suits(word)]
        named = mistake(words, dice.choice(places), dice) if places else None
        if named is not None:
            yield words, named


@pytest.fixture
def nothing_may_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        pytest.fail("something was started")

    monkeypatch.setattr("gpudash.run.session.Session.__init__", started)
    reached = ("cli.doctor.main", "cli.list.as_text", "cli.list.catalogue")
    for command in (*reached, "cli.export.export", "cli.sweep_grid.trains_on_gpu"):
        monkeypatch.setattr(f"gpudash.{command}", started)


def test_hundreds_of_wrong_command_lines_are_each_refused_in_one_line(
    nothing_may_start: None, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = wrong_lines()
    for _ in range(COUNT):
        words, named = next(lines)
        try:
            code = main(words)
        except BaseException as error:
            raise AssertionError(words) from error
        output, errors = capsys.readouterr()
        assert (code, output) == (2, ""), (words, errors)
        assert errors.startswith("gpudash: "), words
        assert errors.endswith("\n"), words
        line = errors[:-1]
        assert line.isprintable(), (words, line)
        assert named in line, (words, line)
        assert len(line) < LONGEST, words
