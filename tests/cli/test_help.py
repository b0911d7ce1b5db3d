"""The command line finds itself: every verb is listed, explained and near to what was typed."""

import pytest

from gpudash.cli.main import main
from gpudash.cli.verbs import VERBS, load

EVERY = ("", *VERBS)


def help_of(name: str) -> str:
    return load(name).parser().format_help()


def test_the_help_lists_every_verb_before_any_option() -> None:
    text = help_of("")
    verbs = text[text.index("\nverbs") : text.index("\noptions:")]
    for name in VERBS:
        assert f"  {name} " in verbs
        assert load(name).summary in verbs


@pytest.mark.parametrize("name", EVERY)
def test_every_help_has_two_examples_and_the_exit_codes(name: str) -> None:
    text = help_of(name)
    for line, _ in load(name).examples:
        assert line.startswith(f"gpudash {name}".strip())
        assert line in text
    assert len(load(name).examples) >= 2
    for code in load(name).exits:
        assert f"  {code.value:<4} {code.meaning}" in text


@pytest.mark.parametrize("name", VERBS)
def test_help_of_a_verb_is_what_its_own_option_says(
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
    ],
)
def test_a_mistyped_word_names_the_nearest_valid_one(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    errors = capsys.readouterr().err
    assert errors.endswith(f"; did you mean {meant}?\n")
    assert errors.count("\n") == 1


def test_the_versions_are_told_without_importing_anything_heavy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["-V"])
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("gpudash ")
    assert {"python", "torch", "textual"} <= set(second.replace(",", "").split())
