"""The help: every verb is listed and explained, and an error names the nearest valid word."""

import pytest

from gpudash.cli.main import main
from gpudash.cli.verbs import VERBS, load
from tests.cli.conftest import Refused

EVERY = ("", *VERBS)


def help_of(name: str) -> str:
    return load(name).parser().format_help()


def test_the_help_lists_every_verb_before_any_option() -> None:
    text = help_of("")
    verbs = text[text.index("\nverbs") : text.index("\noptions:")]
    for name in VERBS:
        assert f"  {name} " in verbs
        assert load(name).summary in " ".join(verbs.split())


@pytest.mark.parametrize("name", EVERY)
def test_every_help_has_two_examples_and_the_exit_codes(name: str) -> None:
    text = help_of(name)
    assert text.startswith(f"usage: {load(name).parser().prog} ")
    for line, _ in load(name).examples:
        assert line.startswith(f"gpudash {name}".strip())
        assert line in text
    assert len(load(name).examples) >= 2
    for code, meaning in load(name).exit_codes():
        assert f" {code} {meaning} " in f"{' '.join(text.split())} "


@pytest.mark.parametrize("name", VERBS)
def test_help_of_a_verb_is_the_same_as_its_help_option(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["help", name]) == 0
    helped = capsys.readouterr().out
    with pytest.raises(SystemExit) as exit_:
        main([name, "--help"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == helped


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["swep"], "sweep"),
        (["encdc"], "encdec"),
        (["help", "doctr"], "doctor"),
        (["encdec", "--recrod", "x.csv"], "--record"),
        (["sweep", "--vry", "batch_size=1,2"], "--vary"),
        (["--set", "pipelind=on"], "pipelined"),
        (["--set", "precision=bf61"], "bf16"),
        (["--device", "cdua"], "cuda"),
        (["--color", "alwys"], "always"),
        (["sweep", "--preset", "optimization"], "optimizations"),
        (["completion", "bsh"], "bash"),
    ],
)
def test_a_mistyped_word_names_the_nearest_valid_one(
    words: list[str], meant: str, refused: Refused
) -> None:
    assert refused(*words).endswith(f"; did you mean {meant}?\n")


@pytest.mark.parametrize("columns", [20, 50, 80, 200])
@pytest.mark.parametrize("name", EVERY)
def test_the_help_is_as_wide_as_the_terminal(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = help_of(name)
    words = max(len(word) for word in text.split())
    unwrapped = {line for line, _ in load(name).examples}  # copied by users, so not wrapped
    unwrapped |= {line.strip() for line in text.split("\n\n", 1)[0].splitlines()}
    others = [line for line in text.splitlines() if line.strip() not in unwrapped]
    assert max(len(line) for line in others) <= max(columns, 26 + words)


def test_a_verb_may_have_its_own_meaning_of_an_exit_code() -> None:
    assert "0 done; with --exit-code: B is faster" in " ".join(help_of("ab").split())
    assert "B is faster" not in help_of("sweep")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--steps"], "--steps needs a value: --steps N"),
        (["--steps", "--live"], "--steps needs a value: --steps N"),
        (["export", "a.csv", "-o"], "--output needs a value: --output FILE"),
        (["--live=yes"], "--live takes no value"),
        (
            ["doctor", "--json", "all"],
            "'all' is one word too many; usage: gpudash doctor [options]",
        ),
        (["encdec", "json"], "'json' is one word too many; did you mean --jsonl?; usage"),
        (["encdec", "train.py"], "'train.py' is one word too many; usage"),
        (["doctor", "--foo"], "unknown option '--foo' (see gpudash doctor --help)"),
        (["encdec", "sweep"], "; a verb comes first: gpudash sweep …"),
        (["--steps", "5", "--steps", "6"], "--steps is given twice, 5 and 6; valid: one of the"),
        (["--record", "a\0b"], r"--record 'a\x00b' is not valid; valid: a file's name"),
        (["encdec", "\x1b[2J\u202e"], r"'\x1b[2J\u202e' is one word too many"),
        (
            ["report", "a"],
            "-o/--output --text is required; usage: gpudash report RUN (--output FILE.",
        ),
        (["x" * 5000], "… has 5,000 characters; valid: at most 4,096"),
        (["ab", "--levr", "pipelined=off,on"], "unknown option '--levr'; did you mean --lever?"),
        (["--qqq"], "unknown option '--qqq' (see gpudash --help)"),
        (["--steps", "5", "--steps", "5"], "the dashboard needs a terminal"),  # it is the same
    ],
)
def test_an_error_says_what_is_wrong_and_what_is_valid(
    words: list[str], complaint: str, refused: Refused
) -> None:
    assert complaint in refused(*words)


def test_versions_are_printed_without_a_heavy_import(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["-V"])
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("gpudash ")
    assert {"python", "torch", "textual"} <= set(second.replace(",", "").split())
