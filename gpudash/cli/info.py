"""`gpudash info`: print versions, folders and settings with their origin. Imports no torch.

`welcome` is what `gpudash` alone prints where its own environment has no torch.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import msgspec

from gpudash import __version__
from gpudash.cli.options import versions
from gpudash.cli.plan import make_plan
from gpudash.cli.stdout import say_found
from gpudash.format import ABSENT, plain
from gpudash.run.child import scratch_folder
from gpudash.run.runs import living
from gpudash.tui import preferences
from gpudash.workload_levers import levers_of
from workloads import DEFAULT, find_workload, names
from workloads.cache import cache_directory, compiled_directory, data_directory
from workloads.needs import install_line

FOLDERS: dict[str, Callable[[], Path]] = {
    "data": data_directory,
    "cache": cache_directory,
    "compiled code": compiled_directory,
    "preferences": preferences.place,
    "scratch": lambda: Path(scratch_folder()),
}


def main(arguments: argparse.Namespace) -> None:
    info = look(arguments)
    say_found(info, as_text(info), as_json=arguments.json, indent=2)


class ConfigurationFile(msgspec.Struct, frozen=True, kw_only=True):
    """A path at which a configuration is looked for."""

    path: str
    found: bool


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of the next run."""

    key: str
    """Its name in the configuration."""
    value: bool | int | float | str | tuple[str, ...] | None
    """None if preferences or the verb decide."""
    set_by: str
    """`command line`, an environment variable, FILE:LINE or `default`."""


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """What `gpudash info --json` prints."""

    schema_version: int = 1
    versions: dict[str, str | None]
    """By name; None if not installed."""
    paths: dict[str, str | None]
    """Folders of files; None without a home directory."""
    files: tuple[ConfigurationFile, ...]
    """The project's, then the user's."""
    problem: str | None
    """Why no configuration is used; None if there is no error."""
    profile: str | None
    settings: tuple[Setting, ...]


def look(arguments: argparse.Namespace) -> Info:
    configuration = arguments.configuration
    return Info(
        versions=versions(),
        paths={name: _path(where) for name, where in FOLDERS.items()},
        files=tuple(
            ConfigurationFile(path=str(path), found=found) for path, found in configuration.files
        ),
        problem=configuration.problem,
        profile=configuration.profile,
        settings=(
            *(Setting(key=key, value=value, set_by=by) for key, value, by in arguments.settings),
            *_levers(arguments),
        ),
    )


def as_text(info: Info) -> str:
    files = {file.path: "found" if file.found else "not there" for file in info.files}
    settings = {one.key: (_shown(one.value), one.set_by) for one in info.settings}
    values = max(len(value) for value, _ in settings.values())
    parts = {
        "versions": {name: version or ABSENT for name, version in info.versions.items()},
        "folders": {name: path or ABSENT for name, path in info.paths.items()},
        "configuration": files,
        "settings": {key: f"{value:<{values}}  {by}" for key, (value, by) in settings.items()},
    }
    if info.profile:
        parts["configuration"]["profile"] = info.profile
    if info.problem:
        parts["configuration"]["not obeyed"] = info.problem
    return "\n\n".join(_part(title, lines) for title, lines in parts.items())


def _part(title: str, lines: dict[str, str]) -> str:
    width = max(map(len, lines))
    return "\n".join(
        [title, *(plain(f"  {name:<{width}}  {line}") for name, line in lines.items())]
    )


def _levers(arguments: argparse.Namespace) -> list[Setting]:
    arguments.workload = arguments.workload or DEFAULT
    plan = make_plan(arguments, trains=False)
    return [
        Setting(
            key=f"levers.{lever.name}",
            value=plan.settings.get(lever.name, lever.default_text),
            set_by=arguments.set_by.get(f"levers.{lever.name}", "default"),
        )
        for lever in levers_of(find_workload(plan.workload))
    ]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(value)
    return ABSENT if value is None else str(value)


def _path(where: Callable[[], Path]) -> str | None:
    try:
        return str(where())
    except RuntimeError:  # no home
        return None


ROWS = (
    ("gpudash run train.py ARGS …", "the dashboard over it; it brings its own torch"),
    ("gpudash run -- torchrun … train.py", "over any command"),
    ("gpudash attach", "over one that runs already"),
    ("gpudash ab --lever compile=off,on train.py", "is one value faster? how sure?"),
)
RECORDED = (
    ("gpudash replay run.csv", "report, compare and export read one too"),
    ("gpudash doctor", "what this machine can measure"),
    ("gpudash --help", "every command"),
)


def welcome() -> str:
    return "\n".join(
        [
            f"gpudash {__version__}",
            "",
            "Your own training, unmodified:",
            *_table(ROWS),
            *(plain(f"  {run.facts.name} runs, process {run.facts.pid}") for run in living()),
            "",
            "A recording, and this machine:",
            *_table(RECORDED),
            "",
            f"The reference workloads {', '.join(names())}",
            "need torch in gpudash's own environment, a few GB:",
            f"  {install_line()}",
        ]
    )


def _table(rows: tuple[tuple[str, str], ...]) -> list[str]:
    width = max(len(command) for command, _ in ROWS)
    return [f"  {command:<{width}}   {what}" for command, what in rows]
