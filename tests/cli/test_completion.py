"""Completion at TAB: the program's answers, and the shells themselves."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from gpudash.cli.completion import SCRIPTS, complete
from gpudash.cli.verbs import SHELLS, VERBS, load
from gpudash.workload_levers import levers_of
from tests.cli.test_ab_changes import versions
from tests.worker_double import ROOT
from workloads import CATALOGUE, find_workload


def words(*line: str) -> list[str]:
    return [word for word, _ in complete(line)[1]]


@pytest.mark.parametrize("name", ["", *VERBS])
def test_every_option_of_every_verb_is_found(name: str) -> None:
    parser = load(name).parser()
    options = {action.option_strings[-1] for action in parser.actions if action.option_strings}
    assert set(words(*filter(None, [name]), "-")) == options


def test_levers_are_those_of_the_workload_that_is_named() -> None:
    assert "augment_on=" in words("augment", "--set", "")
    assert "augment_on=" not in words("encdec", "--set", "")
    assert "loss=" in words("sweep", "--preset", "masked_loss", "--vary", "")
    assert words("--set", "") == [f"{lever.name}=" for lever in levers_of(find_workload("encdec"))]


def test_a_list_is_completed_with_its_missing_values() -> None:
    assert "precision=bf16,bf16" not in words("sweep", "--vary", "precision=bf16,")
    assert complete(["sweep", "--vary", "precision=b"])[0] == "open"


def test_a_version_is_one_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words("gate", "v") == []
    git = versions(tmp_path, v1="")
    assert words("gate", "")[:3] == [".", "main", "v1"]
    assert words("gate", "main", "v") == ["v1"]
    assert words("ab", "--versions", "main,v") == ["main,v1"]
    short = git("rev-parse", "--short", "HEAD").strip()
    assert complete(["gate", short])[1] == [(short, "v1")]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ([""], [*CATALOGUE, *VERBS]),
        (["--device", "c"], ["cpu", "cuda"]),
        (["ab", "--lever", "precision=fp32,b"], ["precision=fp32,bf16"]),
        (["swe"], ["sweep"]),
        (["--set", "batch_size="], ["batch_size=4", "batch_size=8", "batch_size=16"]),
        (
            ["augment", "--set", "pipelined=on", "--set", "augment_on="],
            ["augment_on=cpu", "augment_on=batched"],
        ),
        (["--device=cp"], ["--device=cpu"]),
        (["--color", ""], ["auto", "always", "never"]),
        (["help", "do"], ["doctor"]),
        (["completion", ""], list(SHELLS)),
        (["ab", "jpeg"], ["jpeg_input"]),
        (["--steps", ""], []),
        (["run", "--to", ""], ["csv:", "jsonl:", "prometheus:"]),
        (["run", "--to", "wan"], ["wandb"]),
        (["export", "run.jsonl", "--to", ""], ["otlp:", "tensorboard:"]),
        (["encdec", ""], []),
        (["--nonsense", "--set", "prec"], ["precision="]),
    ],
)
def test_a_value_is_one_that_the_option_takes(line: list[str], found: list[str]) -> None:
    assert words(*line)[: len(found)] == found
    assert bool(words(*line)) == bool(found)


@pytest.mark.parametrize(
    "line",
    [
        ["--record", "r"],
        ["export", ""],
        ["export", "a", "-o", "x"],
        ["run", ""],
        ["run", "--interval", "1", "train.py", "--re"],
        ["run", "-m", "pkg"],
        ["ab", "--lever", "a=1,2", "--", "tr"],
        ["why", "tr"],
        ["why", "train.py", "--js"],
        ["tune", "python", "tr"],
        *(["train", start] for start in ("", "mine", "folder/")),
    ],
)
def test_the_shell_completes_a_files_name(line: list[str]) -> None:
    assert complete(line) == ("files", [])


def test_there_is_a_script_for_every_shell(printed: Callable[..., str]) -> None:
    assert set(SCRIPTS) == set(SHELLS)
    assert printed("completion", "bash") == SCRIPTS["bash"]


# ── the shells themselves ───────────────────────────────────────────────────────────────


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder for the PATH with only `gpudash` and a recording."""
    path = tmp_path / "gpudash"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m gpudash "$@"\n')
    path.chmod(0o755)
    (tmp_path / "my run.csv").touch()
    return tmp_path


CASES = [
    ("gpudash swe", "gpudash sweep "),
    ("gpudash encdec --set precision=b", "gpudash encdec --set precision=bf16 "),
    ("gpudash ab --lever precision=fp32,b", "gpudash ab --lever precision=fp32,bf16"),
    ("gpudash augment --set augm", "gpudash augment --set augment_on="),
    ("gpudash sweep --preset opt", "gpudash sweep --preset optimizations "),
    ("gpudash --devi", "gpudash --device "),
    ("gpudash replay my", "gpudash replay my run.csv "),
]


@pytest.mark.parametrize("shell", SHELLS)
def test_tab_completes_in_the_shell(shell: str, program: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    completed = in_fish if shell == "fish" else in_terminal
    found = completed(shell, [typed for typed, _ in CASES], program)
    if shell == "bash":  # the others add the space only when more is typed
        assert found == [becomes for _, becomes in CASES]
    assert [line.rstrip() for line in found] == [becomes.rstrip() for _, becomes in CASES]


def environment(program: Path) -> dict[str, str]:
    home = {"HOME": str(program), "XDG_CONFIG_HOME": str(program), "TERM": "dumb", "PS1": "> "}
    return os.environ | home | {"PATH": f"{program}:{os.environ['PATH']}"}


def in_terminal(shell: str, lines: list[str], program: Path) -> list[str]:
    """Return the command lines after TAB; an echo before each line prints them."""
    options = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"]}[shell]
    terminal = pexpect.spawn(
        shell, options, env=environment(program), cwd=str(program), encoding="utf-8", timeout=120
    )
    terminal.setwinsize(40, 200)
    if shell == "zsh":
        terminal.sendline("autoload -U compinit; compinit -D -u")
    terminal.sendline(f'eval "$(gpudash completion {shell})"; echo re""ady')
    terminal.expect_exact("ready\r\n")
    completed = []
    for typed in lines:
        terminal.send(f"{typed}\t\x01echo '<'\x05'>'\r")
        terminal.expect(r"\n<([^\n]*)>\r\n")
        completed.append(terminal.match[1])
    terminal.close(force=True)
    return completed


def in_fish(shell: str, lines: list[str], program: Path) -> list[str]:
    """Return the same from fish, which completes without a terminal."""
    asked = "".join(f"complete -C '{typed}'; " for typed in lines)
    done = subprocess.run(
        [shell, "--no-config", "-c", f"gpudash completion fish | source; {asked}"],
        env=environment(program),
        cwd=program,
        capture_output=True,
        text=True,
        check=True,
    )
    found = [line.split("\t")[0].replace("\\ ", " ") for line in done.stdout.splitlines()]
    return [f"{typed.rpartition(' ')[0]} {word}" for typed, word in zip(lines, found, strict=True)]
