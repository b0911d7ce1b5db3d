"""`gpudash ab`: compare in one start of a training, or in several, and say what was found."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpudash.cli.ab_card import check_card, write_card
from gpudash.cli.ab_trial import (
    ComparisonReport,
    Start,
    Trial,
    check_report,
    conclude,
    document,
    exit_code,
    found_lines,
    missing,
    start_report,
    trial_of,
)
from gpudash.cli.headless import interruptions
from gpudash.cli.options import COMMAND_LINE
from gpudash.cli.stdout import complain, say, say_json
from gpudash.compare.ab import Comparison, contention
from gpudash.compare.energy import costs, of_starts
from gpudash.compare.paired_t import Estimate, holds_zero
from gpudash.compare.paired_t import verdict as verdict_of_pairs
from gpudash.compare.starts import FEWEST_STARTS, Sides, check_of_starts, over_starts, verdict
from gpudash.errors import Exit, GpudashError, UsageError
from gpudash.protocol.session import ComparisonShown
from gpudash.run.user_command import understand
from gpudash.snapshot import Snapshot
from gpudash.statistics import geometric, mean
from workloads.levers import LeverError

OVER_STARTS = (
    *("pairs", "change", "low", "high", "steps_per_s", "samples_per_s", "host_ms"),
    *("core_wait_pct", "energy", "verdict"),
)
"""What a comparison and its document have alike, and all starts together too."""


def main(arguments: argparse.Namespace) -> int:
    check_card(arguments)
    trial = trial_of(arguments)
    if arguments.starts == 1:
        return conclude(trial(Start()), arguments)
    if arguments.set_by.get("ab.within") == COMMAND_LINE:
        raise UsageError(
            "--within does not go with --starts: how narrow the interval is, the starts decide"
        )
    _announce(arguments)
    return conclude_starts(measure(trial, arguments), arguments)


def _announce(arguments: argparse.Namespace) -> None:
    if arguments.user_command:
        name = understand(arguments.user_command).name
        complain(
            f"gpudash: {name} will run {arguments.starts} times, one after the other, by the same "
            "command: the files that it writes are written again each time"
        )
    elif not arguments.quiet:
        complain(f"the training is started {arguments.starts} times")


class _StartFinding(NamedTuple):
    """What one start has found."""

    comparison: Comparison
    snapshot: Snapshot
    interrupted: bool
    """Whether Ctrl-C came once it had its result."""

    @property
    def found(self) -> Estimate:
        assert self.comparison.found is not None
        return self.comparison.found

    @property
    def told(self) -> str:
        name = self.comparison.question.name
        return verdict_of_pairs(name, self.found, self.comparison.check)


class _AllStarts(NamedTuple):
    """The starts that have a result, and how it ended."""

    planned: int
    results: Sequence[_StartFinding]
    failed: int | None
    """The exit code if fewer starts than planned have a result; why has been said then."""

    @property
    def early(self) -> str:
        if self.failed is None:
            return ""
        how = "interrupted" if self.failed == Exit.INTERRUPTED else "ended by a failure"
        return f"; {how} before its {self.planned} starts"


def measure(trial: Callable[[Start], Trial], arguments: argparse.Namespace) -> _AllStarts:
    """End with the first start that has no result. Raises UsageError or LeverError."""
    planned, results = arguments.starts, list[_StartFinding]()
    failed: int | None = None
    between_starts: list[int] = []
    with interruptions(between_starts):  # within a start others take the signals
        while failed is None and len(results) < planned:
            start = Start(len(results) + 1, planned)
            found = _result(trial, start, first=not results)
            if isinstance(found, _StartFinding):
                results.append(found)
                if not arguments.quiet:
                    complain(f"{start.name}: {found.told}")
                ends = found.interrupted or between_starts
                failed = Exit.INTERRUPTED if ends and len(results) < planned else None
            else:
                failed = found
    return _AllStarts(planned, results, failed)


def _result(trial: Callable[[Start], Trial], start: Start, *, first: bool) -> _StartFinding | int:
    """Return the exit code if there is no result; why has been said then."""
    try:
        found = trial(start)
    except (GpudashError, LeverError) as error:
        if first:
            raise
        complain(f"gpudash: no verdict{start.where}: {error}")
        return error.exit if isinstance(error, GpudashError) else Exit.REFUSED
    code, (comparison, ended) = missing(found, start), found
    if code is not None or comparison is None:
        return Exit.FAILED if code is None else code
    if ended.interrupted and comparison.cut_short:
        complain(f"gpudash: {start.name} was interrupted and does not count")
        return Exit.INTERRUPTED
    return _StartFinding(comparison, ended.snapshot, ended.interrupted)


def conclude_starts(starts: _AllStarts, arguments: argparse.Namespace) -> int:
    results, failed = starts.results, starts.failed
    if not results:
        return Exit.FAILED if failed is None else failed
    shown = _shown(starts)
    if arguments.json:
        say_json(_document_of_starts(starts, arguments.price))
    elif shown.verdict is not None:
        say("\n".join(_lines(starts, shown, arguments.price)))
    if shown.verdict is not None:
        write_card(shown, results[-1].snapshot, arguments, starts=len(results))
    else:
        complain(
            f"gpudash: no verdict over starts: it needs {FEWEST_STARTS}; "
            f"the only one says: {results[0].told}"
        )
    if failed is not None:
        return failed
    found = over_starts([one.found for one in results])
    return exit_code(found) if arguments.exit_code else Exit.DONE


def _document_of_starts(starts: _AllStarts, price: float | None = None) -> ComparisonReport:
    results, shown = starts.results, _shown(starts)
    newest, reports = results[-1], tuple(start_report(one.comparison) for one in results)
    over = {name: getattr(shown, name) for name in OVER_STARTS}
    return replace(
        document(newest.comparison, newest.snapshot),
        **over,
        confidence=over_starts([one.found for one in results]).confidence,
        starts=reports,
        costs=costs(price, shown),
        skipped_samples=_skipped(results),
        check=check_report(_check(results)),
        seed=reports[0].seed,
    )


def _shown(starts: _AllStarts) -> ComparisonShown:
    results = starts.results
    each = [one.comparison.shown() for one in results]
    found, check = over_starts([one.found for one in results]), _check(results)
    return replace(
        each[-1],
        pairs=found.pairs,
        change=found.change,
        low=found.low,
        high=found.high,
        steps_per_s=_over(one.steps_per_s for one in each),
        samples_per_s=_over(one.samples_per_s for one in each),
        host_ms=_over(one.host_ms for one in each),
        core_wait_pct=mean(one.core_wait_pct for one in each),
        energy=of_starts([one.energy for one in each]),
        verdict=_verdict(starts),
        check_passed=None if check is None else holds_zero(check),
    )


def _lines(starts: _AllStarts, shown: ComparisonShown, price: float | None) -> list[str]:
    results = starts.results
    energy = results[0].comparison.question.energy
    changes = ", ".join(f"{100 * one.found.change:+z.1f}" for one in results)
    return [
        str(shown.verdict),
        f"the starts: {changes} %",
        *found_lines(shown, price, _skipped(results), energy=energy),
    ]


def _check(results: Sequence[_StartFinding]) -> Estimate | None:
    return check_of_starts(one.comparison.check for one in results)


def _verdict(starts: _AllStarts) -> str | None:
    """Return None for a single start."""
    results = starts.results
    if len(results) < FEWEST_STARTS:
        return None
    said = verdict(
        results[0].comparison.question.name,
        [one.found for one in results],
        [one.comparison.check for one in results],
        starts.early,
    )
    return said + contention(mean(one.comparison.shown().core_wait_pct for one in results))


def _skipped(results: Sequence[_StartFinding]) -> int:
    return sum(one.snapshot.skipped_samples for one in results)


def _over(starts: Iterable[Sides]) -> Sides:
    """Return the geometric mean of each side: B's over A's is then the change over the starts."""
    a, b = zip(*starts, strict=True)
    return geometric(a), geometric(b)
