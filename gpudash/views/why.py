"""Show what the answer is based on: rules with values, a profile's figures, origins of gains."""

from collections.abc import Iterable, Iterator, Mapping
from math import floor

from gpudash import format as fmt
from gpudash.snapshot import ENDED, Snapshot
from gpudash.trace.summary import Summary
from gpudash.views.answer import HOLD_S, INTERRUPTED, Answer, as_pause_began, is_comparing
from gpudash.views.collectives import collectives_line
from gpudash.views.evidence import ASK_PROFILE, MOST_WAITS, place
from gpudash.views.recent_step import RecentStep, recent_step
from gpudash.views.remedies import Try
from gpudash.views.rules import HYSTERESIS_PCT, Limit, Rule, limit_of, rules


def why_lines(
    answer: Answer, snapshot: Snapshot, cores: int | None = None, profile: Summary | None = None
) -> list[str]:
    """Return lines of evidence, rules with values, the profile's figures, and origins of gains.

    In a pause the values are those from before it.
    """
    evidence = [*answer.evidence, *filter(None, (answer.caution,))]
    if is_comparing(snapshot) and snapshot.state not in ENDED:
        return [*evidence, "", "the rules are not tried during an A/B"]
    if snapshot.state == "paused":
        snapshot = as_pause_began(snapshot)
    step = recent_step(snapshot, cores, profile)
    profile = step.profile
    asked = rules(snapshot, step, launches=answer.limit == "launch")
    width = max(len(rule.label) for rule in asked)
    found = limit_of(asked, answer.limit)
    marked, stands = _marked(answer, found, asked, snapshot.elapsed_s)
    return [
        *evidence,
        "",
        *(line for rule in asked for line in _rule_lines(rule, width, marked, stands)),
        "",
        f"means over {step.steps:,.0f} steps; {_decides(answer, found)}",
        *filter(None, (collectives_line(snapshot),)),
        *(_profile_lines(profile) if profile is not None else _only_a_profile(snapshot, step)),
        *(line for one in answer.tries for line in _try_lines(one)),
    ]


def _decides(answer: Answer, found: Limit) -> str:
    if answer.kind in ("starting", "measuring"):
        return "there is no answer yet"
    if answer.limit not in (None, found) and answer.kind not in INTERRUPTED:
        return f"an answer stands until it was not found for {HOLD_S:.0f} s"
    return "the first rule that matches is the answer"


def _marked(
    answer: Answer, found: Limit, asked: Iterable[Rule], now_s: float
) -> tuple[Rule | None, dict[Rule, str]]:
    """Return the rule of the limit, and a reason for each rule whose value contradicts its state.

    Values of now may match another rule, or none: an answer stands for a while.
    """
    matching = next((rule for rule in asked if rule.matches()), None)
    if answer.limit == found:
        if matching is None or matching.kind != found:
            matching = next((rule for rule in asked if rule.matches(found)), None)
        if matching is None or matching.matches():
            return matching, {}
        least = fmt.percent(matching.from_pct - HYSTERESIS_PCT)
        return matching, {matching: f"it matched before, and stands down to {least}"}
    own = [
        rule for rule in asked if rule.kind == answer.limit and rule.value_pct and not rule.beaten
    ]
    marked = max(own, key=lambda rule: (rule.value_pct or 0.0) - rule.from_pct, default=None)
    stands: dict[Rule, str] = {}
    if matching is not None and answer.limit is not None:
        stands[matching] = (
            f"it matches: the answer once the present one was not found for {HOLD_S:.0f} s"
        )
    if marked is not None and answer.found is not None:
        ago_s = max(now_s - answer.found.at_s, 0.0)
        since = "before the end" if answer.kind == "ended" else "ago"
        stands[marked] = f"found last {ago_s:.0f} s {since}: an answer stands for {HOLD_S:.0f} s"
    return marked, stands


def _rule_lines(
    rule: Rule, width: int, marked: Rule | None, stands: Mapping[Rule, str]
) -> Iterator[str]:
    """Yield a rule with its value and its threshold, and why it is the limit, or is not yet."""
    is_limit = rule is marked
    value, threshold = _figures(rule)
    beaten = f"; {rule.beaten}" if rule.beaten else ""
    found = f", matches from {threshold}{': the limit' if is_limit else beaten}"
    if rule.value_pct is None:
        found = ", not measured"
    yield f"{'▸' if is_limit else ' '} {rule.label:<{width}} {value:>6}{found}"
    if rule in stands:
        yield f"    {stands[rule]}"


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


def _try_lines(one: Try) -> Iterator[str]:
    yield f"try {one.promise}: {one.why}" if one.gain is None else f"try {one.promise}; {one.why}"
    if one.gain is not None:
        yield f"  {one.gain.label}: {one.gain.source}"
