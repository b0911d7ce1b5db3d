"""`gpudash attempts`: the changes that were judged in this project, and how far all are right."""

import argparse

import msgspec

from gpudash.cli.keeping import holding
from gpudash.cli.stdout import complain_of_left_out, say_found
from gpudash.compare.error_rate import MEANING, RATE
from gpudash.errors import UsageError
from gpudash.format import change, plain
from gpudash.recording.files import reason, shown
from gpudash.run.attempts import Attempt, project_file, read

LISTED = 20
WORDS = {True: "holds", False: "does not hold", None: ""}


class ListedAttempt(Attempt, frozen=True, kw_only=True):
    """An attempt among all others."""

    holds: bool | None
    """Whether its claim holds at the error rate over all attempts; None: it claims nothing."""


class AttemptsReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `gpudash attempts --json` prints."""

    schema_version: int = 1
    attempts: tuple[ListedAttempt, ...]
    """The newest 20, the newest last."""
    earlier: int
    """Those before them, which count all the same."""
    left_out: int
    """Lines of the file that make no sense."""
    claims: int
    """Attempts of all that say `faster` or `slower`."""
    holding: int
    """Those of them that hold."""
    error_rate: float
    """Part of those that hold which may be wrong, in expectation."""
    meaning: str


def main(arguments: argparse.Namespace) -> None:
    path = project_file()
    if path is None:
        raise UsageError("attempts are kept for a Git repository; valid: a folder in one")
    try:
        found = read(path)
    except OSError as error:
        raise UsageError(f"cannot read {shown(path)}: {reason(error)}") from error
    complain_of_left_out(found.damaged, path)
    report = report_of(found.known, found.damaged)
    say_found(report, "\n".join(lines(report)), as_json=arguments.json)


def report_of(known: tuple[Attempt, ...], damaged: int) -> AttemptsReport:
    holds = holding(known)
    listed = [
        ListedAttempt(**msgspec.structs.asdict(one), holds=held)
        for one, held in zip(known, holds, strict=True)
    ]
    return AttemptsReport(
        attempts=tuple(listed[-LISTED:]),
        earlier=max(len(listed) - LISTED, 0),
        left_out=damaged,
        claims=sum(one is not None for one in holds),
        holding=holds.count(True),
        error_rate=RATE,
        meaning=MEANING,
    )


def lines(report: AttemptsReport) -> list[str]:
    many = report.earlier + len(report.attempts)
    if not many:
        return ["no attempts yet: gpudash ab keeps each one"]
    told = [f"and {report.earlier} before these"] * bool(report.earlier)
    told += [_line(one) for one in report.attempts]
    claims = (
        f"{report.claims} of {many} attempts claim a difference, {report.holding} of these hold"
    )
    return [*told, f"{claims}; {report.meaning}"]


def _line(one: ListedAttempt) -> str:
    measured = ""
    if one.change is not None:
        counted = one.counted.removesuffix("s" * (one.count == 1))
        measured = f", {change(one.change, one.low, one.high)}, {one.count} {counted}"
    held = f", {WORDS[one.holds]}" if one.holds is not None else ""
    why = f": {one.told}" if one.told and one.change is None else ""
    return plain(f"{one.when}  {one.lever}={one.a},{one.b}: {one.verdict}{measured}{held}{why}")
