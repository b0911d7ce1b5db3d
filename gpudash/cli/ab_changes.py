"""`gpudash ab` of any change: two commands, or one command in two versions of its repository."""

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from gpudash.cli.ab_report import check_card, exit_code
from gpudash.cli.changes_report import ChangeFindings, document, lines, write
from gpudash.cli.changes_screen import ChangesScreen
from gpudash.cli.following import after_programs
from gpudash.cli.headless import Printer
from gpudash.cli.keeping import Judged, Keeping, keeping
from gpudash.cli.options import COMMAND_LINE
from gpudash.cli.plan import check_with_command
from gpudash.cli.rounds import Asked, MeasuredRound, NoResultError, Rounds
from gpudash.cli.stdout import complain, on_terminal, say_found
from gpudash.cli.user_training import heeding
from gpudash.compare.rounds import EFFECTS, of_budget
from gpudash.errors import Exit, UsageError
from gpudash.format import minutes, plain
from gpudash.run.user_command import understand
from gpudash.run.versions import WorkingTrees, check_locks

OF_CHANGES = ("b", "python_a", "python_b", "dashboard")
MOST_ROUNDS = 100


def are_asked(arguments: argparse.Namespace) -> bool:
    """Tell whether two trainings are to be compared. Raises UsageError for half of that."""
    of_changes = [f"--{name.replace('_', '-')}" for name in OF_CHANGES if getattr(arguments, name)]
    are = arguments.versions is not None or arguments.a is not None
    if of_changes and not are:
        raise UsageError(f"{of_changes[0]} goes with --a or --versions")
    return are


def main(arguments: argparse.Namespace) -> int:
    _check(arguments)
    check_card(arguments)
    with _sides(arguments) as (lever, asked):
        a, b = (one.name for one in asked)
        is_fixed = arguments.starts is not None
        found = ChangeFindings(lever, a, b, within=arguments.within, fixed=is_fixed)
        with keeping(arguments, lever, a, b) as attempt:
            return ComparingChanges(found, asked, arguments, attempt).main()


def _check(arguments: argparse.Namespace) -> None:
    """Raise UsageError for what does not go together."""
    if arguments.versions is None:
        if arguments.b is None:
            raise UsageError("--a needs --b: the command to compare it with")
        if arguments.python_a or arguments.python_b:
            raise UsageError("--python-a and --python-b go with --versions")
        if arguments.user_command or arguments.set_by.get("workload") == COMMAND_LINE:
            raise UsageError("--a and --b name both commands; valid: no other beside them")
    elif arguments.b is not None:
        raise UsageError("--b goes with --a; --versions A,B names both versions")
    elif not arguments.user_command:
        raise UsageError("--versions needs a command: SCRIPT.py ARGS, -m MODULE or -- COMMAND")
    for name in ("energy", "price", "losses"):
        if getattr(arguments, name):
            raise UsageError(f"--{name} goes with --lever")
    check_with_command(arguments)
    if arguments.dashboard:
        _check_screen(arguments)


def _check_screen(arguments: argparse.Namespace) -> None:
    for name in ("json", "quiet"):
        if getattr(arguments, name):
            raise UsageError(f"--dashboard does not go with --{name}")
    if not on_terminal():
        raise UsageError("the dashboard needs a terminal")


@contextmanager
def _sides(arguments: argparse.Namespace) -> Iterator[tuple[str, tuple[Asked, Asked]]]:
    """Return what differs, and both sides. Raises UsageError."""
    if arguments.versions is None:
        a, b = (
            Asked(text, understand(["--", *_words(option, text)]))
            for option, text in (("--a", arguments.a), ("--b", arguments.b))
        )
        yield "command", (a, b)
        return
    names = arguments.versions.split(",")
    if len(names) != 2:
        raise UsageError(f"--versions {arguments.versions} is not valid; valid: A,B")
    with versions_asked((names[0], names[1]), arguments) as asked:
        yield "version", asked


@contextmanager
def versions_asked(
    names: tuple[str, str], arguments: argparse.Namespace, *, must_differ: bool = False
) -> Iterator[tuple[Asked, Asked]]:
    """Have a tree for each version meanwhile. Raises UsageError."""
    pythons = arguments.python_a, arguments.python_b
    with WorkingTrees(names, pythons) as trees:
        a, b = trees.versions
        if must_differ and a.commit == b.commit and len({*pythons}) == 1:
            what = f"{a.name} and {b.name} are the same commit, {a.commit[:10]}"
            raise UsageError(f"{plain(what)}; valid: two that differ, or --calibrate")
        check_locks(a, b, pythons)
        words = arguments.user_command
        both = zip(trees.versions, pythons, strict=True)
        first, second = (Asked(one.name, one.command(words, python)) for one, python in both)
        yield first, second


def _words(option: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r} is no command line: {error}") from error


class ComparingChanges:
    """Starts both sides until it is sure, or the budget is spent."""

    def __init__(
        self,
        found: ChangeFindings,
        asked: tuple[Asked, Asked],
        arguments: argparse.Namespace,
        attempt: Keeping | None,
        conclude: Callable[[], int] | None = None,
    ) -> None:
        """`conclude` says what was found, and returns the exit code.

        Without an attempt none is kept.
        """
        self._asked, self._arguments, self._found = asked, arguments, found
        self._attempt = attempt
        self._holds: bool | None = None  # among all attempts
        self._until_s = time.monotonic() + arguments.budget
        self._say_found = conclude or self._found_of_ab
        self._failed: NoResultError | None = None

    def main(self) -> int:
        found, asked, arguments, until_s = self._found, self._asked, self._arguments, self._until_s
        screen = ChangesScreen(found, asked, arguments, until_s) if arguments.dashboard else None
        printer = Printer(sys.stderr, lambda _: self._line())
        self._say, show = complain, lambda running: printer.show(running[0].news)
        if screen is not None:
            self._say, show = screen.say, screen.show
        self._announce()
        rounds = Rounds(asked, arguments, until_s, show, self._say, found.measuring_s)
        with heeding(rounds.take):
            if screen is None:
                self._compare(rounds)
            else:
                screen.run(lambda: self._compare(rounds), rounds.stop)
        return self._conclude()

    @property
    def failed(self) -> Exit | None:
        """Return the exit code of what failed or was interrupted; None: nothing."""
        return None if self._failed is None else self._failed.code or None

    def _compare(self, rounds: Rounds) -> NoResultError | None:
        """Return why there are not more starts, unless they are enough."""
        while self._failed is None and not self._is_over():
            try:
                self._add(rounds.next(seed=len(self._found.measured)))
            except NoResultError as error:
                self._failed = error
        if self._failed is not None and self._failed.why:
            self._say(f"gpudash: a start without a result: {self._failed.why}")
            for line in self._failed.printed:
                self._say(f"  {line}")
        return self._failed

    def _announce(self) -> None:
        if self._arguments.quiet:
            return
        starts, budget = self._arguments.starts, minutes(self._arguments.budget)
        often = f"until it is sure, for {budget} at most"
        if self._found.fixed:
            often = f"{starts} time{'s' * (starts > 1)}, for {budget} at most"
        for letter, one in zip("AB", self._asked, strict=True):
            self._say(f"{letter}: {one.name}")
        writes = "each start writes their files again"
        if self._found.lever == "version":
            writes = "what they write is lost, but for what Git ignores"
        self._say(f"both are started {often}; {writes}")

    def _line(self) -> str:
        return "" if self._arguments.quiet else f"start {len(self._found.measured) + 1}"

    def _add(self, measured: MeasuredRound) -> None:
        found = self._found
        found.add(measured)
        if found.why_not:
            return
        if not self._arguments.quiet:
            self._say(f"start {len(found.measured)}: {found.told}")
        too_little = of_budget(self._arguments.budget, found.rounds[0])
        if len(found.measured) == 1 and too_little and not found.fixed:
            self._say(f"gpudash: {too_little}")

    def _is_over(self) -> bool:
        found, arguments = self._found, self._arguments
        if not found.measured:
            return False
        most = arguments.starts if found.fixed else MOST_ROUNDS
        if found.why_not or len(found.measured) >= most:
            return True
        left_s = self._until_s - time.monotonic()
        if left_s < found.measured[-1].seconds:
            return True
        return found.is_known

    def _conclude(self) -> int:
        found, arguments = self._found, self._arguments
        failed = self.failed
        if not found.measured:
            if failed is None:
                budget = minutes(arguments.budget)
                complain(
                    f"gpudash: no verdict: the budget of {budget} ended before the first start"
                )
            else:
                complain("gpudash: no verdict")
            code = Exit.FAILED if failed is None else failed
            if self._attempt is not None:
                self._attempt.without(code, self._failed.why if self._failed is not None else "")
            return code
        self._keep()
        by_verdict = self._say_found()
        return by_verdict if failed is None else failed

    def _keep(self) -> None:
        found, attempt = self._found, self._attempt
        if attempt is None:
            return
        if found.why_not:
            attempt.without(Exit.FAILED, found.why_not)
            return
        effects = None if found.fixed else EFFECTS
        many = len(found.measured)
        judged = Judged(found.estimate, found.verdict, "starts", many, effects)
        self._holds = attempt.judged(judged)

    def _found_of_ab(self) -> int:
        found, arguments, holds = self._found, self._arguments, self._holds
        if found.why_not:
            complain(f"gpudash: no verdict: {found.why_not}")
            return Exit.FAILED
        following = (
            after_programs(found.estimate, arguments, holds=holds) if arguments.json else None
        )
        report = replace(document(found), holds=holds, next=following)
        say_found(report, "\n".join(lines(found)), as_json=arguments.json)
        write(found, arguments)
        return exit_code(found.estimate) if arguments.exit_code else Exit.DONE
