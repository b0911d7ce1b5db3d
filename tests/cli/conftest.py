"""What tests of several verbs share."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest

from gpudash.cli.main import main
from gpudash.errors import Exit
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
TRAINING = str(ROOT / "tests" / "run" / "scripted_training.py")
GPUDASH = [sys.executable, "-m", "gpudash"]
KINDS = {
    "workload": ("encdec", "--device", "cpu"),
    "command": ("--", TRAINING, "--step-s", "0.004"),
}
"""The end of a command line that names a training, of either kind."""
Refused = Callable[..., str]


@pytest.fixture
def private(monkeypatch: pytest.MonkeyPatch, short_path: Path, tmp_path: Path) -> Path:
    """An empty working folder, with runs of its own; no environment is activated."""
    monkeypatch.setenv("GPUDASH_RUN_DIR", str(short_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "GPUDASH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=KINDS)
def training(
    request: pytest.FixtureRequest, called_with_double: None, private: Path
) -> tuple[str, ...]:
    """In turn a workload, by its double, and a command."""
    return KINDS[request.param]


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Refused:
    """Return a function that calls gpudash, and returns the line in which it is refused."""

    def call(*words: str) -> str:
        assert main(words) == Exit.REFUSED
        output, errors = capfd.readouterr()
        assert (output, errors[:9], errors.count("\n")) == ("", "gpudash: ", 1)
        return errors

    return call


@pytest.fixture
def printed(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that calls gpudash, and returns what it printed; all went well."""

    def call(*words: str) -> str:
        assert main(words) == Exit.DONE
        return capfd.readouterr().out

    return call


def script(folder: Path, code: str) -> str:
    path = folder / "train.py"
    path.write_text(code)
    return str(path)


def in_terminal(words: list[str], *texts: str, **options: Any) -> pexpect.spawn:
    """A command in a terminal that has shown these texts."""
    terminal = pexpect.spawn(words[0], words[1:], encoding="utf-8", timeout=PATIENCE_S, **options)
    return shows(terminal, *texts)


def shows(terminal: pexpect.spawn, *texts: str) -> pexpect.spawn:
    """Wait until the terminal has shown these patterns, one after the other."""
    for text in texts:
        terminal.expect(text)
    return terminal


def ended(terminal: pexpect.spawn) -> pexpect.spawn:
    """Wait until what runs in the terminal has ended."""
    terminal.expect(pexpect.EOF)
    terminal.close()
    return terminal
