"""The entry point: finds the verb, checks its arguments, runs it, and returns the exit code.

Each command imports the screen, the session and the rest when it needs them, so `gpudash --help`
and completions are fast.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module

from gpudash.cli.arguments import parse as arguments_of
from gpudash.cli.parser import Verb
from gpudash.cli.stdout import complain, make_do
from gpudash.cli.verbs import VERBS, load
from gpudash.errors import Exit, GpudashError, UsageError
from workloads import names
from workloads.levers import LeverError
from workloads.nearest import did_you_mean
from workloads.own.names import installed, is_file

LONGEST = 4096
"""Limit of a word's characters: no file's name is longer."""


def main(argv: Sequence[str] | None = None) -> int:
    make_do()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words[:1] == ["__complete"]:  # called by the shells at each TAB
            import_module("gpudash.cli.completion").answer(words[1:])
            return Exit.DONE
        verb, arguments = parse(words)
        make_do(ascii_only=arguments.ascii)
        _color(arguments.color)
        module = verb.module or verb.name or "dashboard"
        return int(import_module(f"gpudash.cli.{module}").main(arguments) or Exit.DONE)
    except LeverError as error:
        complain(f"gpudash: {error}")
        return Exit.REFUSED
    except GpudashError as error:
        complain(f"gpudash: {error}")
        return error.exit
    except KeyboardInterrupt:
        complain("gpudash: interrupted")
        return Exit.INTERRUPTED


def parse(words: Sequence[str]) -> tuple[Verb, Namespace]:
    """Return the dashboard by default. Raises UsageError."""
    first, *others = words or [""]
    named = first in VERBS
    for word in load(first).parser().split_words(others)[0] if named else words:
        if len(word) > LONGEST:
            raise UsageError(
                f"{word[:40]!r}… has {len(word):,} characters; valid: at most {LONGEST:,}"
            )
    is_known = named or not first or first.startswith("-") or first in names()
    if not is_known and first not in installed():
        if is_file(first) or first.endswith(".py"):
            raise UsageError(
                f"{first!r} is a file; gpudash run {first} watches it train, "
                f"gpudash train {first} trains a workload that it defines"
            )
        raise UsageError(
            f"unknown workload {first!r}; valid: {', '.join(names())}, or a verb: "
            f"{', '.join(VERBS)}{did_you_mean(first, (*names(), *VERBS))}"
        )
    verb = load(first if named else "")
    try:
        arguments = arguments_of(verb, others if named else words)
    except UsageError as error:
        late = next((word for word in others if word in VERBS), None)
        if named or late is None:
            raise
        raise UsageError(f"{error}; a verb comes first: gpudash {late} …") from error
    arguments.command = ["gpudash", *words]
    arguments.ascii = arguments.ascii or _lacks_unicode()
    return verb, arguments


def _lacks_unicode() -> bool:
    import locale  # slow; --help needs none of it

    return "utf" not in locale.getencoding().lower()


def _color(when: str) -> None:
    """Set or unset NO_COLOR, which every library and child process knows."""
    if when == "never":
        os.environ["NO_COLOR"] = "1"
    elif when == "always":
        os.environ.pop("NO_COLOR", None)
