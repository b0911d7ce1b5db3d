"""Parse the user's command: what is run, by which Python, where; how to look in from elsewhere."""

import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import gpudash
from gpudash import rendezvous
from gpudash.errors import UsageError
from gpudash.format import plain
from workloads.nearest import script_like
from workloads.needs import missing
from workloads.own.names import names_a_script

INJECTED = Path(gpudash.__file__).parent / "inject"
"""Holds the `sitecustomize` that finds the training in whatever Python the command starts."""
LAUNCHERS = ("torch.distributed.", "accelerate.")
"""Modules that launch a script; the script's name follows."""
INTERPRETER = re.compile(r"(.*/)?python(\d+(\.\d+)?t?)?")
"""What a Python is called, with or without its folder."""
ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX")
"""Variables that name the activated environment."""


class UserCommand(NamedTuple):
    """A command and its name."""

    name: str
    """The script's, module's or command's name, on screen and in recordings."""
    argv: tuple[str, ...]
    folder: Path | None = None
    """Where it starts; None is the current folder."""
    python_path: tuple[str, ...] = ()
    """What its Pythons search before what the user has put on PYTHONPATH."""


def begins_command(word: str) -> bool:
    return names_a_script(word) or INTERPRETER.fullmatch(word) is not None


def understand(
    words: Sequence[str], python: str | None = None, folder: Path | None = None
) -> UserCommand:
    """Take `SCRIPT.py …`, `-m MODULE …` (both also after a Python), or `-- COMMAND…`.

    What the words name lies in the folder; the Python is as seen from the current one.
    """
    bare = list(words[:1]) == ["--"]
    words = tuple(words[1:] if bare else words)
    if not words:
        raise UsageError("there is nothing to run; valid: SCRIPT.py, -m MODULE or -- COMMAND")
    if words[0] == "-m":
        if len(words) == 1:
            raise UsageError("-m needs the name of a module: -m MODULE")
        return UserCommand(_name(words), (interpreter(python), *words), folder)
    names_python = INTERPRETER.fullmatch(words[0]) is not None
    if names_python and python is not None:
        raise UsageError(f"--python {python} does not go with {words[0]}; valid: one of the two")
    if names_python or (bare and not words[0].endswith(".py")):
        return UserCommand(
            _name(words), (_executable(words[0], "command", folder), *words[1:]), folder
        )
    name = _check_script(words[0], folder)
    return UserCommand(plain(name), (interpreter(python), *words), folder)


def environment(run: rendezvous.Rendezvous, command: UserCommand) -> dict[str, str]:
    """Return this environment, extended so that the command's Pythons report to this run."""
    paths = [str(INJECTED), *command.python_path, os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        rendezvous.ENVIRONMENT: str(run.path),
    }


def _name(words: Sequence[str]) -> str:
    words = [plain(word) for word in words]
    for word, following in zip(words, (*words[1:], ""), strict=True):
        if word.endswith(".py"):
            return Path(word).name
        if word == "-m" and following and not following.startswith(LAUNCHERS):
            return following
    return Path(words[0]).name


def interpreter(asked: str | None, option: str = "--python") -> str:
    """Prefer the requested Python, then the activated environment's, then one with a torch."""
    if asked is not None:
        found = _executable(asked, option)
        return str(Path(found).absolute()) if "/" in found else found
    for name in ENVIRONMENTS:
        python = Path(os.environ.get(name, "")) / "bin" / "python"
        if os.environ.get(name) and os.access(python, os.X_OK):
            return str(python)
    usual = (shutil.which(word) for word in ("python", "python3"))
    return next(filter(None, usual), sys.executable) if missing(("torch",)) else sys.executable


def _check_script(word: str, folder: Path | None) -> str:
    """Return the script's name."""
    path = Path(folder or "") / word
    try:
        if path.is_dir() and not (path / "__main__.py").exists():
            raise UsageError(
                f"{Path(word)} is a folder without a __main__.py; valid: a Python script"
            )
        with path.open("rb") if path.is_file() else os.scandir(path):
            pass
    except NotADirectoryError:  # a pipe, which Python reads once
        pass
    except (OSError, ValueError) as error:
        is_missing = isinstance(error, FileNotFoundError)
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"no such file: {Path(word)}{script_like(str(path))}"
            if is_missing
            else f"cannot read {Path(word)}: {why}"
        ) from error
    return path.resolve().name


def _executable(word: str, what: str, folder: Path | None = None) -> str:
    place = Path(folder or "").absolute() / word if "/" in word else Path(word)
    if shutil.which(place):
        return word
    if place.is_dir():
        raise UsageError(f"{what} {word} is a folder, not a program")
    if place.exists() and "/" in word:
        raise UsageError(f"{what} {word} is not executable")
    raise UsageError(f"{what} not found: {word}")


ATTACH = "gpudash attach"


def look_in() -> str:
    where = os.environ
    if job := where.get("SLURM_JOB_ID"):
        node, nodes = where.get("SLURMD_NODENAME"), where.get("SLURM_JOB_NUM_NODES", "1")
        on = f"-w {shlex.quote(node)} " if node and nodes != "1" else ""
        return f"srun --overlap --jobid {shlex.quote(job)} {on}-N 1 -n 1 --pty {ATTACH}"
    if "KUBERNETES_SERVICE_HOST" in where:
        return f"kubectl exec -it {platform.node()} -- {ATTACH}"
    return ATTACH


def in_slurm_step() -> bool:
    """At a step's end, Slurm kills all of its processes."""
    return "SLURM_STEP_ID" in os.environ
