"""`gpudash ab`: is one value of a lever faster than another, by how much, how sure."""

import sys
from typing import Any

import msgspec

from gpudash.analysis.comparison import BLOCK_S, MIN_STEPS, RUN_MIN_STEPS, RUN_S, Comparison
from gpudash.analysis.paired import passed
from gpudash.errors import UsageError
from gpudash.headless import News, follow
from gpudash.session import Session
from gpudash.snapshot import Snapshot
from workloads import Entry
from workloads.levers import find

FASTER, NOT_SHOWN, SLOWER = 0, 3, 4
"""Exit codes with --exit-code; 1 is a comparison that failed, 2 bad input."""


def two_values(entry: Entry, text: str) -> tuple[str, str, str]:
    """Return lever, A and B of `NAME=A,B`. Raises UsageError or LeverError."""
    name, _, values = text.partition("=")
    lever = find(entry.levers, name)
    sides = [lever.canonical(value) for value in values.split(",")]
    if len(sides) != 2:
        raise UsageError(f"--lever {text} is not valid; valid: NAME=A,B with two values")
    return name, sides[0], sides[1]


def run_ab(session: Session, comparison: Comparison, *, as_json: bool, exit_code: bool) -> int:
    """Run the comparison and print its verdict. Returns the exit code."""
    news = News()
    session.conduct(comparison)
    interrupted = follow(session, news, progress_line, lambda: comparison.done)
    snapshot = news.snapshot
    if session.failure is not None:
        print(f"gpudash: {session.failure.sentence}", file=sys.stderr)
        return 2 if session.failure.kind in ("bad_setting", "out_of_memory") else 1
    if comparison.verdict is None:
        reason = "interrupted" if interrupted else comparison.failure or "it did not finish"
        print(f"gpudash: no verdict: {reason}", file=sys.stderr)
        return 130 if interrupted else 1
    if as_json:
        print(msgspec.json.encode(as_dict(comparison, snapshot)).decode())
    else:
        print(comparison.verdict)
        print(_rates(comparison))
    return _code(comparison) if exit_code else 0


def progress_line(snapshot: Snapshot) -> str:
    """Return how far the comparison is, and what is known so far."""
    shown = snapshot.comparison
    if shown is None:
        return f"{snapshot.workload}: {snapshot.status}"
    line = f"{shown.lever}: {shown.a} or {shown.b}? {shown.pairs}/{shown.planned_pairs} pairs"
    if shown.change is not None and shown.low is not None and shown.high is not None:
        line += f", {shown.change * 100:+.1f} % [{shown.low * 100:+.1f}, {shown.high * 100:+.1f}]"
    return line


def as_dict(comparison: Comparison, snapshot: Snapshot) -> dict[str, Any]:
    """Return everything a program wants to know of a verdict."""
    question, shown, found = comparison.question, comparison.shown(), comparison.found
    check = comparison.check
    return {
        "workload": snapshot.workload,
        "device": snapshot.device.name if snapshot.device else None,
        "settings": snapshot.settings,
        "lever": question.lever,
        "a": question.a,
        "b": question.b,
        "pairs": shown.pairs,
        "change": shown.change,
        "low": shown.low,
        "high": shown.high,
        "confidence": found.confidence if found else None,
        "steps_per_s": shown.steps_per_s,
        "host_ms": shown.host_ms,
        "verdict": comparison.verdict,
        "check": None
        if check is None
        else {**msgspec.structs.asdict(check), "passed": passed(check)},
        "min_steps": RUN_MIN_STEPS if question.short_runs else MIN_STEPS,
        "min_s": RUN_S if question.short_runs else BLOCK_S,
        "seed": question.seed,
    }


def _rates(comparison: Comparison) -> str:
    shown = comparison.shown()
    sides = zip((shown.a, shown.b), shown.steps_per_s, shown.host_ms, strict=True)
    return "; ".join(
        f"{shown.lever}={value}: {_number(rate)} steps/s, host busy {_number(host_ms)} ms a step"
        for value, rate, host_ms in sides
    )


def _code(comparison: Comparison) -> int:
    shown = comparison.shown()
    if shown.low is None or shown.high is None or shown.low <= 0 <= shown.high:
        return NOT_SHOWN
    return FASTER if shown.low > 0 else SLOWER


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}" if value < 10 else f"{value:.1f}"
