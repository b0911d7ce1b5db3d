"""The parser and the help of a verb. An error is one line with the nearest valid word.

Every import here delays each TAB: see benchmarks/bench_command_line.py.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, Literal, NamedTuple, NoReturn

from gpudash.cli.options import OF_EVERY_VERB, PROFILE, Group, OneOf, Option, Options
from gpudash.cli.stdout import say
from gpudash.errors import Exit, UsageError
from workloads.nearest import did_you_mean, not_valid

WIDEST = 100
"""Most columns of the help: longer lines are hard to read."""
TERM_WIDTH = 26
"""Columns of a term; a longer one is printed above its explanation instead of beside it."""
OLD_NAMES = {"ab": {"precision": "within"}}
"""Names that options of verbs had before, with today's. They are still taken, and no help has them.
"""


class Verb(NamedTuple):
    """A verb of the command line. `main` of its module does the work."""

    name: str
    """Empty for the dashboard, which opens without a verb."""
    summary: str
    """One line on what it is for."""
    examples: tuple[tuple[str, str], ...]
    """Command lines, each with its purpose."""
    options: Options = ()
    """Those that not every verb has, in the order of the help."""
    exits: tuple[Exit, ...] = (Exit.DONE, Exit.REFUSED)
    meanings: Mapping[Exit, str] = {}
    """Meanings of exit codes that differ from `Exit.meaning`."""
    details: Callable[[], str] = str
    """Returns further text for the help."""
    module: str = ""
    """The one with `main(arguments)`, which returns the exit code or None, if it is not the verb's
    own."""
    usage: str = ""
    """The usage after the name, if it cannot be derived from the arguments."""
    also: str = ""
    """A second line of the usage."""
    user_command: Literal["", "alone", "or workload", "after --"] = ""
    """Whether a command of the user's is taken: no; no other training is; or else a workload is;
    or it begins at `--`. Else it begins at the first word that is no option's, at `-m` or at `--`.
    Its words become the argument `user_command`. A workload is that first word, and options may
    follow it."""
    configuration: Literal["unread", "obeyed", "reported"] = "unread"
    """How the verb uses the configuration. Errors in a reported one are not raised."""

    def parser(self) -> "Parser":
        parser = Parser(self)
        profile = (PROFILE,) if self.configuration == "obeyed" else ()
        add(parser, (*self.options, *profile, *OF_EVERY_VERB))
        parser.take_old_names(OLD_NAMES.get(self.name, {}))
        parser.usage = parser.derived_usage()
        return parser

    def exit_codes(self) -> Iterable[tuple[str, str]]:
        for code in self.exits:
            yield str(code.value), self.meanings.get(code, code.meaning)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser with one-line errors, which refuses an option given twice."""

    def __init__(self, verb: Verb) -> None:
        super().__init__(prog=f"gpudash {verb.name}".strip(), formatter_class=_Formatter)
        self.verb = verb
        self._positionals.title = "arguments"
        self.register("action", None, _Once)
        self.register("action", "store", _Once)
        self.given: dict[str, object] = {}
        """The values set by the command line, by option."""

    @property
    def actions(self) -> list[argparse.Action]:
        return self._actions

    @property
    def options(self) -> dict[str, argparse.Action]:
        return {action.dest: action for action in self._actions}

    def take_old_names(self, names: Mapping[str, str]) -> None:
        """Take options by old names too; nothing lists these."""
        for old, name in names.items():
            self._option_string_actions[f"--{old}"] = self._option_string_actions[f"--{name}"]

    # ── reading ─────────────────────────────────────────────────────────────────────────

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Report an unknown option before missing ones. Raises UsageError."""
        ours, of_user = self.split_words(words)
        for word in takewhile("--".__ne__, ours):
            self._check_option(word)
        found, extra = self.parse_known_args(ours)
        for word in extra:
            raise UsageError(
                f"{word!r} is one word too many{self._near(f'--{word}')}; {self.usage_line()}"
            )
        found.user_command = of_user
        return found

    def split_words(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """Split the words into gpudash's own and those of the user's command."""
        awaits_value = has_workload = False
        for at, word in enumerate(words if self.verb.user_command else ()):
            is_value = awaits_value and not word.startswith("-")
            is_first = not (is_value or has_workload) and (word == "-m" or word[:1] != "-")
            if word == "--" or (is_first and self._begins_command(word)):
                return list(words[:at]), list(words[at:])
            has_workload = has_workload or is_first
            awaits_value = not is_value and "=" not in word and self._takes_value(word)
        return list(words), []

    def _begins_command(self, word: str) -> bool:
        if self.verb.user_command == "after --":
            return False
        if word == "-m" or self.verb.user_command == "alone":
            return True
        from gpudash.run.user_command import begins_command  # not for each help and TAB

        return begins_command(word)

    def _takes_value(self, word: str) -> bool:
        known = self._option_string_actions
        action = known.get(word) or next(
            (known[option] for option in known if word[:2] == "--" and option.startswith(word)),
            None,
        )
        return action is not None and action.nargs != 0

    def _check_option(self, word: str) -> None:
        name, known = word.partition("=")[0], self._option_string_actions
        value = word == "-" or " " in word or self._negative_number_matcher.match(word)
        if not word.startswith("-") or value or name in known:
            return
        if name.startswith("--"):
            found = any(option.startswith(name) for option in known)  # argparse completes it
        else:
            found = name[:2] in known
        if not found:
            hint = self._near(name) or f" (see {self.prog} --help)"
            raise UsageError(f"unknown option {name!r}{hint}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise UsageError(not_valid(_name(action), str(value), map(str, action.choices)))

    def error(self, message: str) -> NoReturn:
        """Raise UsageError instead of printing the usage."""
        if both := re.fullmatch(r"argument (\S+): not allowed with argument (\S+)", message):
            raise UsageError(f"{both[1]} does not go with {both[2]}; valid: one of the two")
        found = re.match(r"argument (\S+): (expected|ignored)", message)
        action = next((one for one in self._actions if found and _is(one, found[1])), None)
        if found and action and found[2] == "expected":
            raise UsageError(f"{_name(action)} needs a value: {_with_value(action)}")
        if found and action:
            raise UsageError(f"{_name(action)} takes no value")
        raise UsageError(f"{message}; {self.usage_line()}")

    def _near(self, option: str) -> str:
        return did_you_mean(option, self._option_string_actions)

    # ── printing ────────────────────────────────────────────────────────────────────────

    def usage_line(self) -> str:
        return self.format_usage().splitlines()[0].strip()

    def format_help(self) -> str:
        verb = self.verb
        self.description = _folded(f"{verb.summary}\n\n{verb.details()}".rstrip())
        parts = definitions("examples", verb.examples), definitions("exit codes", verb.exit_codes())
        self.epilog = "\n\n".join(parts)
        return super().format_help()

    def derived_usage(self) -> str:
        required = [action for action in self._actions if action.option_strings and action.required]
        one_of = [
            " | ".join(map(_with_value, group._group_actions))  # noqa: SLF001  # has no public name
            for group in self._mutually_exclusive_groups
            if group.required
        ]
        words = [
            self.prog,
            *(_with_value(action) for action in self._actions if not action.option_strings),
            *map(_with_value, required),
            *(f"({words})" for words in one_of),
            "[options]",
        ]
        if self.verb.usage:
            words = [self.prog, self.verb.usage]
        lines = [" ".join(words), *filter(None, (self.verb.also,))]
        return "\n       ".join(lines).replace("%", "%%")

    def print_help(self, _file: Any = None) -> None:
        """Print by `say`, like all other output. Raises OutputError."""
        say(self.format_help(), end="")


def add(place: "argparse._ActionsContainer", options: Options) -> None:
    for one in options:
        match one:
            case Option():
                place.add_argument(*one.names, **one.how)
            case OneOf():
                add(place.add_mutually_exclusive_group(required=one.required), one.options)
            case Group():
                add(place.add_argument_group(one.title), one.options)


class _Once(argparse.Action):
    """Stores a value, and refuses a different second one, as either may be meant."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,  # noqa: ARG002  # argparse's own signature
    ) -> None:
        assert isinstance(parser, Parser)
        before = parser.given.setdefault(self.dest, values)
        if before != values:
            raise UsageError(
                f"{_name(self)} is given twice, {before} and {values}; valid: one of the two"
            )
        setattr(namespace, self.dest, values)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=TERM_WIDTH, width=columns())


def columns() -> int:
    """Avoid shutil, which knows the width too: importing it is slow."""
    try:
        width = int(os.environ.get("COLUMNS", "")) or 80
    except ValueError:
        try:
            width = os.get_terminal_size(sys.stdout.fileno()).columns
        except (AttributeError, ValueError, OSError):
            width = 80
    return max(20, min(width, WIDEST))


def _folded(text: str) -> str:
    import textwrap  # slow, and only for the help

    return "\n".join(textwrap.fill(line, columns()) for line in text.splitlines())


def definitions(title: str, pairs: Iterable[tuple[str, str]]) -> str:
    import textwrap  # slow, and only for the help

    pairs = tuple(pairs)
    width = columns()
    at = min(4 + max(len(term) for term, _ in pairs), TERM_WIDTH, width // 2)
    lines = [f"{title}:"]
    for term, meaning in pairs:
        first, *others = textwrap.wrap(meaning, width - at) or [""]
        head = f"  {term}"
        lines += [f"{head:<{at}}{first}"] if len(head) + 2 <= at else [head, " " * at + first]
        lines += [" " * at + line for line in others]
    return "\n".join(lines)


def help_of(action: argparse.Action) -> str:
    return (action.help or "").replace("%%", "%")


def _name(action: argparse.Action) -> str:
    return action.option_strings[-1] if action.option_strings else _metavar(action)


def _is(action: argparse.Action, name: str) -> bool:
    """Return whether argparse's errors call the action by this name."""
    return name in ("/".join(action.option_strings), action.metavar, action.dest)


def _metavar(action: argparse.Action) -> str:
    return str(action.metavar or action.dest.upper())


def _with_value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return _name(action)
    value = _metavar(action)
    value = {"?": f"[{value}]", "*": f"[{value} …]", "+": f"{value} …"}.get(
        str(action.nargs), value
    )
    return f"{action.option_strings[-1]} {value}" if action.option_strings else value
