"""Write the manual page, docs/reference/gpudash.1, from the parsers.

python docs/make_man.py
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from gpudash import __version__
from gpudash.cli.parser import Parser, help_of
from gpudash.cli.verbs import VERBS, load

PAGE = Path(__file__).parent / "reference" / "gpudash.1"
ENVIRONMENT = (
    ("NO_COLOR", "If set, nothing is coloured unless --color always is given."),
    ("COLUMNS", "How wide the help is; by default as wide as the terminal, 100 at most."),
    ("GPUDASH_PROFILE", "The profile of the configuration files that is obeyed, as by --profile."),
    ("GPUDASH_TOKEN", "What opens the connection of gpudash run --connect to --listen."),
    ("GPUDASH_DATA", "The folder of the images that the workloads generate."),
    ("GPUDASH_RUN_DIR", "The folder in which gpudash run and gpudash attach meet."),
)

COMMON = {"--help", "--ascii", "--color"}
"""Options of every verb, told once."""


def man_page() -> str:
    """Return the page of `man gpudash`."""
    dashboard = load("").parser()
    lines = [
        f'.TH GPUDASH 1 "" "gpudash {__version__}" "User Commands"',
        ".SH NAME",
        f"gpudash \\- {_text(dashboard.verb.summary.rstrip('.').lower())}",
        ".SH SYNOPSIS",
        *_synopsis(dashboard, *(load(name).parser() for name in VERBS)),
        ".SH DESCRIPTION",
        _text(
            f"{dashboard.verb.summary} A verb does something else; without one the dashboard opens."
        ),
        ".SH OPTIONS",
        *_options(dashboard),
        ".SH VERBS",
    ]
    for name in VERBS:
        parser = load(name).parser()
        lines += [f".SS {name}", _text(parser.verb.summary), *_options(parser)]
    lines += [".SH EXIT STATUS"]
    for name in ("", *VERBS):
        verb = load(name)
        own = [(str(code.value), meaning) for code, meaning in verb.meanings.items()]
        lines += _terms(verb.exit_codes() if not name else own, of=name)
    lines += [".SH ENVIRONMENT", *_terms(ENVIRONMENT), ".SH EXAMPLES"]
    for name in ("", *VERBS):
        lines += _terms(load(name).examples)
    return "\n".join(lines) + "\n"


def _synopsis(*parsers: Parser) -> Iterable[str]:
    for place, parser in enumerate(parsers):
        usage = parser.usage_line().removeprefix("usage: ")
        yield from [".br"] * (place > 0)
        yield _text(usage)


def _options(parser: Parser) -> Iterable[str]:
    for action in parser.actions:
        common = parser.prog != "gpudash" and set(action.option_strings) & COMMON
        if not common:
            yield from _terms([(_invocation(action), help_of(action))])


def _invocation(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
    return " ".join(filter(None, (", ".join(action.option_strings), value)))


def _terms(pairs: Iterable[tuple[str, str]], of: str = "") -> Iterable[str]:
    for term, meaning in pairs:
        yield from (".TP", f".B {_text(term)}", _text(f"{of}: {meaning}" if of else meaning))


def _text(text: str) -> str:
    """Return text with nothing in it that roff would obey."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    PAGE.write_text(man_page(), encoding="utf-8")
