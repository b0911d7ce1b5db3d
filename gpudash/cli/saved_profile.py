"""Write a profile into the project's configuration file, beside what it has."""

import re
import tomllib
from collections.abc import Collection
from pathlib import Path

from gpudash.errors import RecordingError, UsageError
from gpudash.input_file import read_input
from gpudash.output_file import replace_file
from gpudash.protocol.records import Settings
from gpudash.recording.files import reason

MOST_BYTES = 16 << 20
"""Of a file that a profile is added to."""
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
        before = read_input(path, MOST_BYTES).decode() if path.is_file() else ""
        end = "\r\n" if "\r\n" in before else "\n"
        gap = "" if not before else end if before.endswith("\n") else 2 * end
        text = f"{before}{gap}" + end.join(lines) + end
        tomllib.loads(text)  # it may have the profiles as a table in one line
        replace_file(path, text.encode())
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise RecordingError(f"the profile was not saved: {path}: {why}") from error
