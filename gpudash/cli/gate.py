"""`gpudash gate`: may a change go in? The exit code says so."""

import fcntl
import os
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
from msgspec.structs import replace

from gpudash.cli.ab_changes import ComparingChanges, versions_asked
from gpudash.cli.ab_report import check_card
from gpudash.cli.changes_report import ChangeFindings, write
from gpudash.cli.following import more_time
from gpudash.cli.gate_report import (
    EXITS,
    CalibrationFindings,
    GateFindings,
    as_junit,
    as_markdown,
    document,
    lines,
)
from gpudash.cli.keeping import Keeping, keeping
from gpudash.cli.rounds import Asked
from gpudash.cli.stdout import complain, say, say_found
from gpudash.cli.sweep_outputs import check_place
from gpudash.compare.rounds import FEWEST_ROUNDS
from gpudash.errors import Exit, UsageError
from gpudash.recording.files import created
from gpudash.run.user_repository import root_of

STDOUT = Path("-")
OF_AB = {
    **dict.fromkeys(("starts", "pairs", "within")),
    **dict.fromkeys(("dashboard", "no_instruments", "exit_code"), False),
}
"""What `gpudash ab` may be asked besides."""


def main(arguments: Namespace) -> int:
    arguments = Namespace(**OF_AB | vars(arguments))
    _check(arguments)
    if arguments.calibrate:
        arguments.new, arguments.python_b = arguments.base, arguments.python_a
    names = arguments.base, arguments.new
    with (
        _alone(root_of(Path.cwd())),
        versions_asked(names, arguments, must_differ=not arguments.calibrate) as asked,
    ):
        busy, cores = psutil.getloadavg()[0], os.cpu_count() or 1  # both of the whole machine
        if busy >= cores:
            complain(
                f"gpudash: the machine is loaded: {busy:.0f} processes for {cores} cores; "
                "the gate takes longer, or stays inconclusive"
            )
        return (_calibrate if arguments.calibrate else _gate)(asked, arguments)


def _check(arguments: Namespace) -> None:
    """Raise UsageError or RecordingError before anything starts."""
    if not arguments.user_command:
        raise UsageError("gpudash gate needs a command: gpudash gate BASE [NEW] -- SCRIPT.py ARGS")
    outputs = ("markdown", "junit", "card")
    if arguments.calibrate and (named := [one for one in outputs if getattr(arguments, one)]):
        raise UsageError(f"--{named[0]} does not go with --calibrate")
    if arguments.calibrate and (arguments.new != "." or arguments.python_b):
        raise UsageError("--calibrate compares BASE with itself; valid: no NEW, no --python-b")
    if arguments.markdown == STDOUT and arguments.json:
        raise UsageError("--markdown - does not go with --json; valid: one of the two")
    if arguments.card is not None:
        check_card(arguments)
    for path in (arguments.markdown, arguments.junit):
        if path not in (None, STDOUT):
            check_place(path, replace=arguments.force)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Say that another gate runs here: its trees are its own, the machine is not."""
    with ExitStack() as until_the_end:
        try:
            folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
            until_the_end.callback(os.close, folder)
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            complain(f"gpudash: another gate runs in {root}: both take longer, and are less sure")
        except OSError:  # a file system without locks
            pass
        yield


def _gate(asked: tuple[Asked, Asked], arguments: Namespace) -> int:
    base, new = (one.name for one in asked)
    found = GateFindings(base, new, arguments.max_slowdown)

    def conclude() -> Exit:
        if arguments.markdown == STDOUT:
            for line in lines(found):
                complain(line)
            say(as_markdown(found), end="")
        else:
            following = more_time(arguments) if found.ending == "inconclusive" else None
            report = replace(document(found), next=following)
            say_found(report, "\n".join(lines(found)), as_json=arguments.json)
        for path, written in ((arguments.markdown, as_markdown), (arguments.junit, as_junit)):
            if path not in (None, STDOUT):
                with created(path, force=arguments.force) as file:
                    file.append(written(found).encode())
        if not found.why_not:
            write(found, arguments)
        return EXITS[found.ending]

    with keeping(arguments, found.lever, base, new) as attempt:
        return _measured(asked, arguments, found, conclude, attempt)


def _calibrate(asked: tuple[Asked, Asked], arguments: Namespace) -> int:
    found = CalibrationFindings(asked[0].name, arguments.max_slowdown, arguments.budget)

    def conclude() -> Exit:
        told = found.document()
        if told is None:
            complain(f"gpudash: no forecast: it needs {FEWEST_ROUNDS} starts of each")
            return Exit.NOT_SHOWN
        say_found(told, told.sentence, as_json=arguments.json)
        return Exit.DONE

    return _measured(asked, arguments, found, conclude)


def _measured(
    asked: tuple[Asked, Asked],
    arguments: Namespace,
    found: ChangeFindings,
    conclude: Callable[[], Exit],
    attempt: Keeping | None = None,
) -> int:
    """Conclude, too, if the budget ended before the first start did."""
    comparing = ComparingChanges(found, asked, arguments, attempt, conclude)
    code = comparing.main()
    return code if found.measured or comparing.failed else conclude()
