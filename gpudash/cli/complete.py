"""What may follow on the command line: the hidden `gpudash __complete WORDS…`, asked at each TAB.

The answer comes from the parsers and the catalogue. Its first line says what to do with the
others: `words`, `open` (more may be added without a space) or `files` (the shell knows those).
Each other line is a word, and after a tab what it is.
"""

import argparse
import os
from collections.abc import Iterator, Sequence

from gpudash.cli.options import DEVICES, FileName
from gpudash.cli.parser import Parser, help_of
from gpudash.cli.verbs import VERBS, load
from gpudash.commands.stdout import say
from gpudash.errors import Exit
from workloads import CATALOGUE, DEFAULT
from workloads.levers import Lever

Words = Iterator[tuple[str, str]]
"""With what each is."""
LISTS = ("NAME=A,B", "LEVER=A,B,…")
"""Metavars of levers with several values."""
OWN = "FILE.py[:NAME]"
"""Metavar of a workload of a user's own."""

GPUS = "/proc/driver/nvidia/gpus"


def main(words: Sequence[str]) -> int:
    """Print what the last of the words may be."""
    how, found = complete(words)
    say("\n".join([how, *(f"{word}\t{what}" for word, what in found)]))
    return Exit.DONE


def complete(words: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """Return what to do with the words that the last one may become, and these."""
    *before, current = words or [""]
    named = bool(before) and before[0] in VERBS
    verb = load(before[0] if named else "")
    parser, before = verb.parser(), before[1:] if named else before
    if parser.apart([*before, current])[1]:  # the user's command is
        return "files", []
    line = _Line(parser, before)
    option, equals, value = current.partition("=")
    action, head = line.waits, ""
    if action is None and current.startswith("-"):
        action = line.option(option) if equals else None
        if action is None:
            return "words", _beginning(current, line.options())
        head, current = f"{option}=", value
    if action is None:
        action = line.positional
    if action is None:
        return "words", []
    if isinstance(action.type, FileName) or action.metavar == OWN:
        return "files", []
    found = _beginning(current, line.values(action, current))
    if not before and not head:
        found += _beginning(current, ((verb, load(verb).summary) for verb in VERBS))
    is_open = action.metavar in LISTS or all(word.endswith("=") for word, _ in found)
    return "open" if is_open else "words", [(head + word, what) for word, what in found]


def _beginning(start: str, words: Words) -> list[tuple[str, str]]:
    return [(word, what) for word, what in words if word.startswith(start)]


class _Line:
    """What a parser makes of the words before the one that is typed."""

    def __init__(self, parser: Parser, words: Sequence[str]) -> None:
        self._parser = parser
        self.waits: argparse.Action | None = None
        """The option whose value is next."""
        self._given: dict[str, str] = {}
        """Where a value is expected, what was said."""
        places = [action for action in parser.actions if not action.option_strings]
        for word in words:
            if self.waits is not None:
                self._given[self.waits.dest], self.waits = word, None
            elif word.startswith("-"):
                name, equals, value = word.partition("=")
                action = self.option(name)
                if action is not None and action.nargs != 0:
                    self.waits = None if equals else action
                    self._given[action.dest] = value
            elif places:
                self._given[places.pop(0).dest] = word
        self.positional = places[0] if places else None

    def option(self, name: str) -> argparse.Action | None:
        """Return the option of that name."""
        return next((one for one in self._parser.actions if name in one.option_strings), None)

    def options(self) -> Words:
        """Yield the long options, and the short ones that have none."""
        for action in self._parser.actions:
            if action.option_strings:
                yield action.option_strings[-1], help_of(action)

    def values(self, action: argparse.Action, current: str) -> Words:
        """Yield what an option or a positional argument may be."""
        if action.choices is not None:
            yield from ((str(choice), "") for choice in action.choices)
        elif action.metavar == "WORKLOAD":
            yield from ((entry.name, entry.summary) for entry in CATALOGUE.values())
        elif action.metavar == "VERB":
            yield from ((verb, load(verb).summary) for verb in VERBS)
        elif action.metavar == "DEVICE":
            yield from ((device, "") for device in _devices())
        elif action.metavar == "PRESET":
            from gpudash.compare.sweep.presets import ON_GPU  # noqa: PLC0415  # a sweep's alone

            yield from ((name, preset.workload) for name, preset in ON_GPU.items())
        elif action.metavar in ("LEVER=VALUE", "LEVER[=VALUE]"):
            yield from self._settings(current, several=False)
        elif action.metavar in LISTS:
            yield from self._settings(current, several=True)

    def _settings(self, current: str, *, several: bool) -> Words:
        name, equals, values = current.partition("=")
        if not equals:
            yield from ((f"{lever.name}=", lever.summary) for lever in self._levers())
            return
        *known, _ = values.split(",") if several else [values]
        head = "".join([name, "=", *(f"{value}," for value in known)])
        for lever in self._levers():
            if lever.name == name:
                others = (value for value in _values(lever) if value not in known)
                yield from ((head + value, _mark(lever, value)) for value in others)

    def _levers(self) -> tuple[Lever, ...]:
        """Return those of the workload that is trained, or of the preset's."""
        name = self._given.get("workload", "")
        if preset := self._given.get("preset"):
            from gpudash.compare.sweep.presets import ON_GPU  # noqa: PLC0415  # a sweep's alone

            name = ON_GPU[preset].workload if preset in ON_GPU else name
        return CATALOGUE.get(name, CATALOGUE[DEFAULT]).levers


def _values(lever: Lever) -> tuple[str, ...]:
    """Return the values by name; of a number, the default and its neighbours."""
    default = lever.default_text
    near = (lever.step(default, -1), default, lever.step(default, 1))
    return lever.values or tuple(dict.fromkeys(near))


def _mark(lever: Lever, value: str) -> str:
    return "default" if value == lever.default_text else ""


def _devices() -> list[str]:
    """Return what can be trained on: the NVIDIA driver has a folder for each GPU."""
    try:
        count = len(os.listdir(GPUS))  # noqa: PTH208  # pathlib's import would be waited for
    except OSError:
        count = 0
    return [*DEVICES[:-1], *(f"cuda:{index}" for index in range(count))]
