"""What tunes leave: findings, with which a second one needs its proof alone; a `--save` profile."""

import re
import tomllib
from collections.abc import Collection
from pathlib import Path

import msgspec
from platformdirs import user_cache_path

from gpudash import own_file
from gpudash.errors import RecordingError, UsageError
from gpudash.input_file import read_input
from gpudash.output_file import replace_file
from gpudash.protocol.records import Settings
from gpudash.protocol.training import State
from gpudash.recording.files import reason

KEPT = 200
"""The newest ones."""


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be the same for a finding to be worth trying again."""

    workload: str
    command: tuple[str, ...]
    """The user's command; empty for a workload."""
    found: str
    """What was found in a script: model and optimizer."""
    settings: Settings
    """Every lever before the tune, the batch size among them."""
    levers: tuple[str, ...]
    """Those that were tried."""
    device: str
    versions: dict[str, str]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a tune has found under some circumstances."""

    of: Circumstances
    best: Settings
    """As changes of the settings from before."""


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """The file's content, the newest finding last."""

    findings: tuple[Finding, ...] = ()


def circumstances(
    state: State, levers: tuple[str, ...], *, command: tuple[str, ...], found: str
) -> Circumstances:
    assert state.process is not None, "a tune begins with a process that is ready"
    return Circumstances(
        workload=state.workload,
        command=command,
        found=found,
        settings=state.settings,
        levers=levers,
        device=state.process.device.name,
        versions=state.process.versions,
    )


def recall(of: Circumstances) -> Settings | None:
    return next((one.best for one in reversed(_read().findings) if one.of == of), None)


def remember(of: Circumstances, best: Settings) -> None:
    """If nothing was found, forget what was; a cache that cannot be written is no error."""
    kept = [one for one in _read().findings if one.of != of]
    if best:
        kept.append(Finding(of=of, best=best))
    own_file.write(place(), Findings(findings=tuple(kept[-KEPT:])))


def place() -> Path:
    return user_cache_path("gpudash") / "tunes.json"


def _read() -> Findings:
    return own_file.read(place(), Findings())


MOST_BYTES = 16 << 20
"""Of a file that a profile is added to."""
NAME = re.compile(r"[A-Za-z0-9_-]+")


def check_profile(name: str, known: Collection[str]) -> None:
    """Raise UsageError if no profile of this name can be written beside the known ones."""
    if not NAME.fullmatch(name):
        raise UsageError(f"--save {name!r} is not valid; valid: letters, digits, - and _")
    if name in known:
        raise UsageError(f"--save {name}: there is a profile of this name; valid: another name")


def save_profile(path: Path, name: str, workload: str, settings: Settings) -> None:
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
