"""`gpudash ab`: compare in one start of a training, or in several, and say what was found."""

import argparse
from collections.abc import Callable

from gpudash.cli.ab_card import check_card, write_card
from gpudash.cli.ab_report import StartFinding, StartFindings, document, lines
from gpudash.cli.ab_trial import Start, Trial, missing, trial_of
from gpudash.cli.headless import interruptions
from gpudash.cli.options import COMMAND_LINE
from gpudash.cli.stdout import complain, say, say_json
from gpudash.compare.paired_t import Estimate, holds_zero
from gpudash.compare.starts import FEWEST_STARTS
from gpudash.errors import Exit, GpudashError, UsageError
from gpudash.run.user_command import understand
from workloads.levers import LeverError


def main(arguments: argparse.Namespace) -> int:
    check_card(arguments)
    trial = trial_of(arguments)
    if arguments.starts > 1:
        if arguments.set_by.get("ab.within") == COMMAND_LINE:
            raise UsageError(
                "--within does not go with --starts: how narrow the interval is, the starts decide"
            )
        _announce(arguments)
    return conclude(measure(trial, arguments), arguments)


def _announce(arguments: argparse.Namespace) -> None:
    if arguments.user_command:
        name = understand(arguments.user_command).name
        complain(
            f"gpudash: {name} will run {arguments.starts} times, one after the other, by the same "
            "command: the files that it writes are written again each time"
        )
    elif not arguments.quiet:
        complain(f"the training is started {arguments.starts} times")


def measure(trial: Callable[[Start], Trial], arguments: argparse.Namespace) -> StartFindings:
    """End with the first start that has no result. Raises UsageError or LeverError."""
    planned, results = arguments.starts, list[StartFinding]()
    failed: int | None = None
    between_starts: list[int] = []
    with interruptions(between_starts):  # within a start others take the signals
        while failed is None and len(results) < planned:
            start = Start(len(results) + 1, planned)
            found = _result(trial, start, first=not results)
            if isinstance(found, StartFinding):
                results.append(found)
                if planned > 1 and not arguments.quiet:
                    complain(f"{start.name}: {found.told}")
                is_early = len(results) < planned or found.comparison.cut_short
                ends = found.interrupted or between_starts
                failed = Exit.INTERRUPTED if ends and is_early else None
            else:
                failed = found
    return StartFindings(results, planned, failed)


def _result(trial: Callable[[Start], Trial], start: Start, *, first: bool) -> StartFinding | int:
    """Return the exit code if there is no result; why has been said then."""
    try:
        found = trial(start)
    except (GpudashError, LeverError) as error:
        if first:
            raise
        where = f" in {start.name}" if start.of > 1 else ""
        complain(f"gpudash: no verdict{where}: {error}")
        return error.exit if isinstance(error, GpudashError) else Exit.REFUSED
    code, (comparison, ended) = missing(found, start), found
    if code is not None or comparison is None:
        return Exit.FAILED if code is None else code
    if ended.interrupted and comparison.cut_short and start.of > 1:
        complain(f"gpudash: {start.name} was interrupted and does not count")
        return Exit.INTERRUPTED
    return StartFinding(comparison, ended.snapshot, ended.interrupted)


def conclude(findings: StartFindings, arguments: argparse.Namespace) -> int:
    results, failed = findings.results, findings.failed
    if not results:
        return Exit.FAILED if failed is None else failed
    shown = findings.shown
    if arguments.json:
        say_json(document(findings, arguments.price))
    elif shown.verdict is not None:
        say("\n".join(lines(findings, arguments.price)))
    if shown.verdict is not None:
        write_card(shown, results[-1].snapshot, arguments, starts=len(results))
    else:
        complain(
            f"gpudash: no verdict over starts: it needs {FEWEST_STARTS}; "
            f"the only one says: {results[0].told}"
        )
    if failed is not None:
        return failed
    return exit_code(findings.found) if arguments.exit_code else Exit.DONE


def exit_code(found: Estimate) -> int:
    if found.low is None or holds_zero(found):
        return Exit.NOT_SHOWN
    return Exit.DONE if found.change > 0 else Exit.SLOWER
