"""The arguments of a verb, from the command line or else from the configuration."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gpudash.cli.options import COMMAND_LINE, OPTIONS, key_of
from gpudash.cli.parser import Parser, Verb
from gpudash.cli.verbs import load

if TYPE_CHECKING:
    from gpudash.cli.config import Configuration

UNSET = object()
"""The default of a configurable option while the command line is parsed."""


def parse(verb: Verb, words: Sequence[str]) -> Namespace:
    """Return the arguments of a verb.

    A verb that obeys the configuration also gets `levers` (a function of an entry), `theme`,
    `pane`, `profiles` (the known names), `project_file` (where a profile goes), and `set_by`: what
    has set each setting that is not a default, by its key. A verb that reports the configuration
    also gets `configuration` and `settings`. Raises UsageError.
    """
    parser = verb.parser()
    if verb.configuration == "unread":
        return parser.parse(words)
    keys = _keys(verb, parser)
    defaults = {name: parser.get_default(name) for name in keys}
    parser.set_defaults(**dict.fromkeys(keys, UNSET))
    arguments = parser.parse(words)
    from gpudash.cli import config
    from gpudash.cli.config_values import SCREEN

    reports = verb.configuration == "reported"
    configuration = config.read(getattr(arguments, "profile", None), lenient=reports)
    chosen = configuration.chosen()
    arguments.set_by = {}
    for name, key in keys.items():
        if getattr(arguments, name) is not UNSET:
            arguments.set_by[key] = COMMAND_LINE
        elif key in chosen:
            setattr(arguments, name, chosen[key].value)
            arguments.set_by[key] = chosen[key].by
        else:
            setattr(arguments, name, defaults[name])
    arguments.levers, arguments.profiles = configuration.levers, configuration.profiles
    arguments.project_file = configuration.files[0][0] if configuration.files else None
    for key in SCREEN:
        setattr(arguments, key, chosen[key].value if key in chosen else None)
    if reports:
        arguments.configuration = configuration
        arguments.settings = tuple(_settings(configuration, arguments))
    return arguments


def _keys(verb: Verb, parser: Parser) -> dict[str, str]:
    return {
        name: key_of(table, name)
        for table in ("", verb.name)
        for name in OPTIONS.get(table, ())
        if name in parser.options
    }


def _settings(
    configuration: "Configuration", arguments: Namespace
) -> Iterator[tuple[str, Any, str]]:
    chosen = configuration.chosen()
    settings = {
        key_of(table, name): (load(table).parser().get_default(name), "default")
        for table, names in OPTIONS.items()
        for name in names
    }
    settings |= {"theme": (None, "default"), "pane": (None, "default")}
    settings |= {key: one for key, one in chosen.items() if not key.startswith("levers.")}
    settings |= {
        key: (getattr(arguments, key), by)
        for key, by in arguments.set_by.items()
        if by == COMMAND_LINE
    }
    for key, (value, by) in settings.items():
        yield key, value, by
