"""`gpudash train FILE.py`, and every other verb over such a file: over the worker's double.

Real workers train a user's file in tests/run/test_rank_processes.py, and the line of an error in
it is told by tests/workloads/test_own_files.py.
"""

import json
import os
import sys
from pathlib import Path

import pytest

from gpudash.cli.main import main
from gpudash.compare import experiment
from tests.workloads.own_files import LAZY

PACKAGE = "[gpudash.workloads]\ninstalled = package_of_mine:linear\n"


@pytest.fixture(autouse=True)
def folder(
    called_with_double: None, own_catalogue: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The working folder, with a workload and an installed package that offers another."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(LAZY)
    site = tmp_path / "site"
    (site / "mine-1.dist-info").mkdir(parents=True)
    (site / "mine-1.dist-info" / "entry_points.txt").write_text(PACKAGE)
    (site / "mine-1.dist-info" / "METADATA").write_text("Name: mine\nVersion: 1\n")
    (site / "package_of_mine.py").write_text(LAZY)
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    monkeypatch.setenv("DOUBLE_STEP_S", "0.002")
    monkeypatch.syspath_prepend(site)
    return tmp_path


def test_a_broken_msgspec_on_its_path_does_no_harm(folder: Path, monkeypatch, capsys) -> None:
    (folder / "src").mkdir()
    (folder / "src" / "msgspec.py").write_text("raise RuntimeError('half an upgrade')")
    monkeypatch.setenv("PYTHONPATH", str(folder / "src"), prepend=os.pathsep)
    assert main(["list", "mine.py"]) == 0
    assert capsys.readouterr().out.startswith("mine.py: Fit a sum.\n")


@pytest.mark.parametrize(
    "words", [("train", "mine.py:linear"), ("train", "installed"), ("installed",)]
)
def test_it_is_recorded_under_the_name_it_was_given(words: tuple[str, ...], printed) -> None:
    how = ("--steps", "5", "--record", "-", "-q", "--set", "width=16")
    row = printed(*words, *how).splitlines()[1]
    assert f",{words[-1]},0,2," in row
    assert "bias=on;depth=2;width=16;kind=a;" in row


def test_an_ab_moves_its_own_levers(printed, monkeypatch) -> None:
    for name in ("BLOCK_S", "RUN_S"):
        monkeypatch.setattr(experiment, name, 0.01)
    asked = ("--lever", "width=8,16", "--pairs", "2", "--json", "-q")
    verdict = json.loads(printed("ab", "mine.py", *asked))
    assert verdict | {"workload": "mine.py", "lever": "width", "b": "16"} == verdict


def test_a_sweep_varies_its_own_levers(printed) -> None:
    table = printed("sweep", "mine.py", "--vary", "kind=a,b", "--rounds", "2", "--steps", "3", "-q")
    assert "mine.py on CPU" in table
    assert "kind" in table


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["train", "mime.py"], "mime.py: No such file or directory; did you mean mine.py?"),
        (["train", "mine.py:x"], "unknown workload 'mine.py:x'; valid: mine.py:linear"),
        (["train", "mine.py", "--set", "widht=8"], "unknown lever 'widht'; valid: pipelined"),
        (["train", "mine.py", "--set", "width=9"], "'9' is not valid; valid: 8, 16"),
        (["train", "instaled"], "did you mean installed?"),
        (["train"], "FILE.py[:NAME]"),
        (["mine.py"], "gpudash train mine.py trains a workload that it defines"),
        (["ab", "mine.py", "--lever", "width=8,9"], "'9' is not valid; valid: 8, 16"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_one_line(words: list[str], why: str, refused) -> None:
    assert why in refused(*words)


def test_it_is_listed_and_installed_ones_are_named_without_importing_them(printed) -> None:
    listed = printed("list", "mine.py")
    assert listed.startswith("mine.py: Fit a sum.\n  source: mine.py\n")
    assert "\n  width = 8   [8, 16]   takes effect: rebuilt model\n" in listed
    assert "from package_of_mine" not in listed
    assert "installed: installed, from package_of_mine:linear" in printed("list")
    assert "package_of_mine" not in sys.modules
    document = json.loads(printed("list", "--json"))
    assert document["installed"]["installed"] == "package_of_mine:linear"


def test_the_lines_for_its_own_lever_are_in_the_workload(printed) -> None:
    shown = " ".join(printed("show", "width=16", "--workload", "mine.py").split())
    assert "width=16: No lines are written for width; those of a workload's own lever" in shown
    assert "torch.autocast" in printed("show", "precision=bf16", "--workload", "mine.py")


def test_a_terminal_shows_what_it_waits_for_and_clears_it(capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["list", "mine.py"]) == 0
    assert capsys.readouterr().err == "reading mine.py\r\x1b[2K"
