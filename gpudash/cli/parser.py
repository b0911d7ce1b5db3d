"""A parser whose complaint is one line, and whose help shows examples and exit codes."""

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from gpudash.commands.stdout import say
from gpudash.errors import Exit, UsageError
from workloads.nearest import did_you_mean


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A command as the command line knows it. Its module in `gpudash.commands` does the work."""

    name: str
    """Empty for the dashboard, which opens where no verb is named."""
    summary: str
    """One line in `gpudash --help`."""
    add_arguments: Callable[["Parser"], None]
    examples: tuple[tuple[str, str], ...]
    """Command lines, and what each is for."""
    exits: tuple[Exit, ...] = (Exit.DONE, Exit.FAILED, Exit.REFUSED)
    details: Callable[[], str] = str
    """Returns what its help says besides."""
    module: str = ""
    """Has `main(arguments)`, which returns the exit code."""

    def parser(self) -> "Parser":
        """Return the parser of what follows the verb."""
        parser = Parser(
            prog=f"gpudash {self.name}".strip(),
            description=self.summary,
            epilog=f"{_examples(self.examples)}\n\n{_exits(self.exits)}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.details = self.details
        self.add_arguments(parser)
        return parser


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaint is one line with the nearest valid option."""

    details: Callable[[], str] = str
    """Returns what the help says after the first line; only asked for help."""

    def format_help(self) -> str:
        """Return the help, details included."""
        summary = self.description
        self.description = "\n\n".join(filter(None, (summary, self.details())))
        try:
            return super().format_help()
        finally:
            self.description = summary

    def error(self, message: str) -> NoReturn:
        """Raise UsageError instead of printing the usage."""
        hint = ""
        if unknown := re.match(r"unrecognized arguments: (--?[\w-]+)", message):
            hint = did_you_mean(unknown[1], self._option_string_actions)
        raise UsageError(f"{message}{hint or f' (see {self.prog} --help)'}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Exit after --help or --version, once that is written. Raises OutputError."""
        say("", end="")
        super().exit(status, message)

    def print_help(self, file: Any = None) -> None:
        """Print the help where everything else is printed."""
        if file is None:
            say(self.format_help(), end="")
        else:
            super().print_help(file)


def _examples(examples: Sequence[tuple[str, str]]) -> str:
    width = max(len(line) for line, _ in examples)
    lines = [f"  {line:<{width}}  {what}" for line, what in examples]
    return "\n".join(["examples:", *lines])


def _exits(exits: Sequence[Exit]) -> str:
    lines = [f"  {code.value:<4} {code.meaning}" for code in exits]
    return "\n".join(["exit codes:", *lines])
