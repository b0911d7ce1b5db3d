"""The configuration: settings that a user has chosen for every run.

The first of these that has a setting decides: the command line, the chosen profile, the project's
file, the user's file, the default. The project's file is the nearest
`gpudash.toml`, or `pyproject.toml` with `[tool.gpudash]`, from the working folder upwards to a
`.git`. The user's file is `config.toml` in the user's configuration folder.

The key of a setting is its path in a file:

    device, workload, interval, rate, ascii,    the options of these names
    color, price
    batch_size, pipelined, seed                 the levers of these names, as options set them
    levers.NAME, levers.WORKLOAD.NAME           a lever, of every workload that has it or of one
    ab.pairs, ab.within, replay.speed,          options of one verb
    sweep.rounds, sweep.steps, tune.budget,
    why.budget, why.seconds
    theme, pane                                 the dashboard's colours and first tab
    profiles.NAME.KEY                           any of these, where the profile is chosen

Options that name a file, overwrite one or end a run cannot be configured.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gpudash.cli.config_values import (
    SHORTHANDS,
    ConfigurationError,
    Tree,
    checked,
    shape,
)
from gpudash.cli.parser import OLD_NAMES
from gpudash.errors import UsageError
from gpudash.input_file import read_input, read_text
from gpudash.workload_levers import levers_of
from workloads import Entry
from workloads.nearest import did_you_mean

MOST_BYTES = 16 << 20
"""Of a file."""
PREFIX = "GPUDASH_"
VARIABLES = ("GPUDASH_DATA", "GPUDASH_PROFILE", "GPUDASH_RUN_DIR", "GPUDASH_TOKEN")
"""Environment variables that are read, here and elsewhere."""


class _ConfiguredValue(NamedTuple):
    """A setting's value, and the place where it is set."""

    value: Any
    by: str


Layer = dict[str, _ConfiguredValue]
"""The settings of one source, by key."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The settings of all sources."""

    files: tuple[tuple[Path, bool], ...] = ()
    """Path of the project's file and of the user's, each with whether it exists."""
    profile: str | None = None
    profiles: frozenset[str] = frozenset()
    """The names of all profiles."""
    layers: tuple[Layer, ...] = ()
    """The sources; the last one decides."""
    problem: str | None = None
    """Why the configuration is not obeyed."""

    def chosen(self) -> Layer:
        return {key: chosen for layer in self.layers for key, chosen in layer.items()}

    def levers(self, entry: Entry) -> Layer:
        found: Layer = {}
        for layer in self.layers:  # a later layer decides, even with its general table
            for table in ("levers", f"levers.{entry.name}"):
                for lever in levers_of(entry):
                    if chosen := layer.get(f"{table}.{lever.name}"):
                        found[lever.name] = chosen
        return found


def read(profile: str | None = None, *, lenient: bool = False) -> Configuration:
    """Raise UsageError; with `lenient`, keep it in `problem` unless the profile is unknown."""
    files = _find_files()
    found = tuple((path, os.path.isfile(path)) for path in files)  # noqa: PTH113  # never raises
    try:
        documents = [Document.read(path) for path, there in found if there]
        profile, profiles = _choose(profile, documents)
        _check_environment(os.environ)
        layers = tuple(reversed((*profiles, *(one.base for one in documents))))
        names = frozenset(name for one in documents for name in one.profiles)
        configuration = Configuration(files=found, profile=profile, profiles=names, layers=layers)
    except ConfigurationError as error:
        if not lenient:
            raise
        return Configuration(files=found, problem=str(error))
    return configuration


def _find_files() -> tuple[Path, Path]:
    """Return the project's file, or where it could be, and the user's file."""
    from platformdirs import user_config_path  # slow

    user = user_config_path("gpudash") / "config.toml"
    try:
        folder = Path.cwd()
    except OSError:  # the working folder has been removed
        return Path("gpudash.toml"), user
    for place in (folder, *folder.parents):
        for path in (place / "gpudash.toml", place / "pyproject.toml"):
            if os.path.isfile(path) and _is_ours(path):  # noqa: PTH113  # never raises
                return path, user
        if os.path.lexists(place / ".git"):
            break
    return folder / "gpudash.toml", user


def _is_ours(path: Path) -> bool:
    """Most projects' pyproject.toml does not configure gpudash."""
    if path.name == "gpudash.toml":
        return True
    try:
        return b"tool.gpudash" in read_input(path, MOST_BYTES)
    except OSError:
        return False


# ── a file ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Document:
    """The settings in a file."""

    base: Layer
    profiles: dict[str, Layer]

    @classmethod
    def read(cls, path: Path) -> "Document":
        try:
            text = read_text(path, MOST_BYTES)
        except OSError as error:
            raise ConfigurationError(str(path), f"cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigurationError(str(path), "is not UTF-8") from error
        return cls.of(path, text)

    @classmethod
    def of(cls, path: Path, text: str) -> "Document":
        """Parse and check the text of a file. Raises ConfigurationError."""
        import tomllib  # most folders have no such file

        try:
            tree = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            what, _, line = str(error).partition(" (at line ")
            number = line.partition(",")[0] or text.count("\n") + 1
            raise ConfigurationError(f"{path}:{number}", what) from error
        way = ("tool", "gpudash") if path.name == "pyproject.toml" else ()

        def place(steps: tuple[str, ...]) -> str:
            return f"{path}:{line_of(text, (*way, *steps))}"

        for step in way:
            tree = _table(tree.get(step, {}), place(()), "[tool.gpudash]")
        profiles = _table(tree.pop("profiles", {}), place(("profiles",)), "[profiles.NAME]")
        return cls(
            base=_layer(tree, (), place),
            profiles={
                name: _layer(_table(profile, place(steps), "[profiles.NAME]"), steps, place)
                for name, profile in profiles.items()
                for steps in [("profiles", name)]
            },
        )


def _table(value: Any, place: str, valid: str) -> Tree:
    if not isinstance(value, dict):
        raise ConfigurationError(place, f"not valid; valid: {valid}, a table")
    return value


def line_of(text: str, way: Sequence[str]) -> int:
    """Return the line, from 1, that matches most of the path `way` to a key."""
    header: tuple[str, ...] = ()
    best, named = 1, 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("["):
            steps = header = _steps(line.strip(" \t[]").partition("]")[0])
        else:
            steps = (*header, *_steps(line.partition("=")[0]))
        same = min(len(steps), len(way))
        if steps[:same] == tuple(way[:same]) and same > named:
            best, named = number, same
    return best


def _steps(dotted: str) -> tuple[str, ...]:
    return tuple(step.strip("\"'") for step in re.findall(r"\"[^\"]*\"|'[^']*'|[\w-]+", dotted))


def _layer(tree: Tree, way: tuple[str, ...], place: Callable[[tuple[str, ...]], str]) -> Layer:
    layer: Layer = {}
    for steps, key, value in _leaves(tree, shape(), way, (), place):
        by = place(steps)
        if key in layer:
            raise ConfigurationError(by, f"{key} is set twice; first at {layer[key].by}")
        layer[key] = _ConfiguredValue(checked(key, value, by), by)
    return layer


def _leaves(
    tree: Tree,
    known: Tree,
    way: tuple[str, ...],
    keys: tuple[str, ...],
    place: Callable[[tuple[str, ...]], str],
) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """Yield path, key and value of each setting in a tree. Raises ConfigurationError."""
    for name, value in tree.items():
        steps, known_as = (*way, name), name.replace("-", "_")
        known_as = OLD_NAMES.get(".".join(keys), {}).get(known_as, known_as)
        if known_as not in known:
            names = known if keys or way else {**known, "profiles": None}
            hint = did_you_mean(known_as, names)
            if not keys and known_as in known["levers"]:
                hint = "; a lever stands in [levers]"
            elif name == "keys" and not keys:
                hint = "; keys are fixed, and the palette has every action"
            raise ConfigurationError(
                place(steps), f"unknown key {name!r}; valid: {', '.join(names)}{hint}"
            )
        inner, key = known[known_as], (*keys, known_as)
        if isinstance(inner, dict) != isinstance(value, dict):
            valid = (
                f"[{'.'.join(key)}], a table" if isinstance(inner, dict) else "a value, no table"
            )
            raise ConfigurationError(place(steps), f"{name} is not valid; valid: {valid}")
        if isinstance(inner, dict):
            yield from _leaves(value, inner, steps, key, place)
        else:
            yield steps, f"levers.{known_as}" if key[0] in SHORTHANDS else ".".join(key), value


def _choose(named: str | None, documents: Sequence[Document]) -> tuple[str | None, list[Layer]]:
    name = named or os.environ.get("GPUDASH_PROFILE") or None
    if name is None:
        return None, []
    found = [one.profiles[name] for one in documents if name in one.profiles]
    if found:
        return name, found
    known = sorted({name for one in documents for name in one.profiles})
    valid = ", ".join(known) or "none, as no configuration file has [profiles.NAME]"
    wrong = f"unknown profile {name!r}; valid: {valid}{did_you_mean(name, known)}"
    raise UsageError(wrong) if named else ConfigurationError("GPUDASH_PROFILE", wrong)


# ── the environment ─────────────────────────────────────────────────────────────────────


def _check_environment(environment: Mapping[str, str]) -> None:
    """Refuse variables that look like ours and are none. Raises ConfigurationError."""
    for variable, text in environment.items():
        if variable.startswith(PREFIX) and variable not in VARIABLES and text:
            raise ConfigurationError(
                variable,
                "not read; a setting stands in gpudash.toml or on the command line; "
                f"valid: {', '.join(VARIABLES)}{did_you_mean(variable, VARIABLES)}",
            )
