"""What each workload imports is what it says, and without it no training starts."""

import json
import sys
from pathlib import Path

import pytest

from gpudash.cli.main import main
from tests.warm import python
from workloads import CATALOGUE, needs
from workloads.levers import LeverError

BESIDE = {"torch", "torchvision", "scipy", "PIL"}
MISSED = """
import json, os, sys
from importlib import import_module
def missed(module, *hidden):
    reading, writing = os.pipe()
    if not os.fork():
        for name in hidden:
            for one in (name, *(one for one in sys.modules if one.startswith(name + "."))):
                sys.modules[one] = None  # its import fails
        try:
            import_module(module)
            import_module("workloads.training")
        except BaseException as error:
            name = getattr(error, "name", None) or repr(error)
            os.write(writing, name.partition(".")[0].encode())
        os._exit(0)
    os.close(writing)
    return os.read(reading, 100).decode()
print(json.dumps([missed(*one) for one in json.loads(sys.argv[1])]))
"""


def test_a_workload_imports_what_it_needs_and_nothing_else() -> None:
    asked, expected = [], []
    for entry in CATALOGUE.values():
        brought = {"PIL"} if "torchvision" in entry.needs else set()  # it requires pillow itself
        asked += [(entry.module, *sorted(BESIDE - brought - set(entry.needs)))]
        asked += [(entry.module, entry.needs[-1])]
        expected += ["", entry.needs[-1]]
    assert json.loads(python("-c", MISSED, json.dumps(asked)).stdout) == expected


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which nothing is installed beside gpudash."""
    monkeypatch.setattr(needs, "find_spec", lambda _name: None)


@pytest.mark.parametrize(
    "words",
    [
        ["encdec"],
        ["encdec", "--record", "x.csv"],
        ["--once"],
        ["ab", "encdec", "--lever", "compile=off,on"],
        ["sweep", "encdec", "--vary", "batch_size=2,4"],
        ["profile", "encdec"],
        ["why", "encdec"],
    ],
)
def test_what_trains_is_refused_in_a_line(
    words: list[str], bare: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    output, errors = capsys.readouterr()
    why = "encdec needs torch in gpudash's own environment; pip install 'gpudash[workloads]'"
    assert (output, errors.count("\n")) == ("", 1)
    assert errors.startswith(f"gpudash: {why} ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["show", "compile=on"],
        ["info"],
        ["info", "jpeg_input"],
        ["sweep", "encdec", "--vary", "batch_size=2,4", "--dry-run"],
    ],
)
def test_what_trains_nothing_works(words: list[str], bare: None, capsys) -> None:
    assert main(words) == 0


def test_a_bad_setting_is_named_first(bare: None, capsys) -> None:
    assert main(["encdec", "--set", "compile=x"]) == 2
    assert "lever compile: 'x' is not valid" in capsys.readouterr().err


def test_gpudash_alone_says_what_can_be_done(bare: None, capsys) -> None:
    assert main([]) == 2
    output, errors = capsys.readouterr()
    assert errors == ""
    assert len(output.splitlines()) <= 24
    assert max(map(len, output.splitlines())) <= 100
    for line in ("gpudash run train.py", "gpudash attach", "pip install 'gpudash[workloads]'"):
        assert line in output


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("uv-receipt.toml", "uv tool install 'gpudash[workloads]'"),
        ("pipx_metadata.json", "pipx install --force 'gpudash[workloads]'"),
        ("pyvenv.cfg", "pip install 'gpudash[workloads]'"),
    ],
)
def test_the_line_is_the_one_of_whatever_has_installed_gpudash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, line: str
) -> None:
    (tmp_path / file).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert needs.install_line() == line


def test_a_workload_that_is_switched_to_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "find_spec", lambda name: None if name == "scipy" else object())
    with pytest.raises(LeverError, match="jpeg_input needs scipy in gpudash's own environment"):
        CATALOGUE["jpeg_input"].build()
