"""Show what an answer is based on: rules with values, and a profile's figures, as lines."""

from collections.abc import Iterator, Sequence
from math import floor

from gpudash import format as fmt
from gpudash.diagnosis.collectives import collectives_line
from gpudash.diagnosis.evidence import ASK_PROFILE, MOST_WAITS, place
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.diagnosis.rules import HYSTERESIS_PCT, Limit, Rule
from gpudash.snapshot import Snapshot
from gpudash.trace.summary import Summary


def reasons(
    asked: Sequence[Rule], limit: Limit, snapshot: Snapshot, step: RecentStep
) -> Iterator[str]:
    """Yield the rules with the values by which the limit was found, and the profile's figures."""
    width = max(len(rule.label) for rule in asked)
    matching = next((rule for rule in asked if rule.matches()), None)
    if matching is None or matching.kind != limit:
        matching = next((rule for rule in asked if rule.matches(limit)), None)
    yield from (line for rule in asked for line in _rule_lines(rule, width, matching))
    yield ""
    yield f"means over {step.steps:,.0f} steps; the first rule that matches is the answer"
    yield from filter(None, (collectives_line(snapshot),))
    profile = step.profile
    yield from _profile_lines(profile) if profile is not None else _only_a_profile(snapshot, step)


def _rule_lines(rule: Rule, width: int, marked: Rule | None) -> Iterator[str]:
    """Yield a rule with its value and its threshold, and whether it is the limit."""
    is_limit = rule is marked
    value, threshold = _figures(rule)
    beaten = f"; {rule.beaten}" if rule.beaten else ""
    found = f", matches from {threshold}{': the limit' if is_limit else beaten}"
    if rule.value_pct is None:
        found = ", not measured"
    yield f"{'▸' if is_limit else ' '} {rule.label:<{width}} {value:>6}{found}"
    if is_limit and not rule.matches():
        least = fmt.percent(rule.from_pct - HYSTERESIS_PCT)
        yield f"    it matched before, and stands down to {least}"


def _figures(rule: Rule) -> tuple[str, str]:
    """Return value and threshold; a value just below it is not rounded up to it."""
    value_pct, from_pct = rule.value_pct, rule.from_pct
    if value_pct is None or not (value_pct < from_pct and round(value_pct) >= round(from_pct)):
        return fmt.percent(value_pct), fmt.percent(from_pct)
    least, most = floor(10 * value_pct) / 10, f"{from_pct:.1f}".removesuffix(".0")
    return f"{least:.1f} %", f"{most} %"


def _profile_lines(profile: Summary) -> Iterator[str]:
    """Yield the profile's figures of a step: its parts, its waits by line, and its copies."""
    idle = [f"{name} {fmt.milliseconds(ms)}" for name, ms in profile.idle_ms.items() if ms]
    parts = [f"busy {fmt.milliseconds(profile.busy_ms)} ms"]
    parts += [f"idle for {', '.join(idle)} ms"] if idle else []
    parts += [f"{profile.launches:,.0f} launches"] if profile.launches is not None else []
    yield ""
    yield f"profile of {profile.steps} steps: a step {fmt.milliseconds(profile.step_ms)} ms"
    yield f"  device {'; '.join(parts)}"
    for one in profile.syncs[:MOST_WAITS]:
        yield f"  waits {fmt.milliseconds(one.blocked_ms)} ms {place(one)}"
    for copy in profile.copies:
        memory = {True: "pinned", False: "not pinned", None: ""}[copy.is_pinned]
        rate = f"at {fmt.significant(copy.gb_s)} GB/s" if copy.gb_s is not None else ""
        size = f"copies {fmt.significant(copy.mib)} MiB {copy.direction}"
        how = " ".join(filter(None, (f"in {fmt.milliseconds(copy.ms)} ms", rate, memory)))
        yield f"  {size} {how}"


def _only_a_profile(snapshot: Snapshot, step: RecentStep) -> Iterator[str]:
    """Yield what only a profile would show."""
    if step.on_gpu and "profile" in snapshot.can:
        yield f"waits, launches and communication within a step: {ASK_PROFILE}"
