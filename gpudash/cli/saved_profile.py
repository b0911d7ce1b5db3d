"""Write a profile into the project's configuration file, beside what it has."""

import re
import tomllib
from collections.abc import Collection
from pathlib import Path

from gpudash.errors import RecordingError, UsageError
from gpudash.protocol.records import Settings
from gpudash.recording.files import reason

NAME = re.compile(r"[A-Za-z0-9_-]+")


def check(name: str, known: Collection[str]) -> None:
    """Raise UsageError if no profile of this name can be written beside the known ones."""
    if not NAME.fullmatch(name):
        raise UsageError(f"--save {name!r} is not valid; valid: letters, digits, - and _")
    if name in known:
        raise UsageError(f"--save {name}: there is a profile of this name; valid: another name")


def write(path: Path, name: str, workload: str, settings: Settings) -> None:
    """Append the profile of a workload's levers to a file. Raises RecordingError."""
    table = "tool.gpudash." if path.name == "pyproject.toml" else ""
    lines = [f"[{table}profiles.{name}.levers.{workload}]"]
    lines += [f'{lever} = "{value}"' for lever, value in settings.items()]
    try:
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
        text = f"{before}{gap}" + "\n".join(lines) + "\n"
        tomllib.loads(text)  # it may have the profiles as a table in one line
        path.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise RecordingError(f"the profile was not saved: {path}: {why}") from error
