"""The receipt: what the dashboard leaves on the terminal. At most eight lines of a snapshot."""

from collections.abc import Callable, Iterator

from gpudash import format as fmt
from gpudash.present.own_line import OwnLine, unknown
from gpudash.present.wording import change_of, changed
from gpudash.protocol.session import ComparisonShown
from gpudash.snapshot import ENDED, Snapshot
from workloads.levers import phrase

MOST_LINES = 8
WIDTH = 100
"""Most columns of a line, but for a command: half of one is none."""


def receipt(
    snapshot: Snapshot, again: str = "", code: Callable[[str, str], OwnLine | None] = unknown
) -> list[str]:
    """`again` is the command that shows the run again; without it and without steps, no lines."""
    last = [_line("again", again)] * bool(again)
    if not snapshot.total_steps:
        name = fmt.plain(snapshot.workload)
        return [f"gpudash: {name}, no training step so far", *last] if again else []
    first = [_title(snapshot), *_rate(snapshot), *_limit(snapshot)]
    last = [*_levers(snapshot, code), *_next(snapshot), *last]
    room = MOST_LINES - len(first) - len(last)
    verdicts = [fmt.clip(line, WIDTH) for line in _verdicts(snapshot)]
    return [*first, *verdicts[:room], *last]


def _line(label: str, text: str) -> str:
    return f"  {label:<8} {fmt.plain(text)}"


def _title(snapshot: Snapshot) -> str:
    ended = f" {snapshot.state}," if snapshot.state in ENDED else ""
    watched = " watched for" if snapshot.joined else " in"
    device = f" on {snapshot.device.name}" if snapshot.device is not None else ""
    steps = f"{snapshot.total_steps:,} step{'s' * (snapshot.total_steps > 1)}"
    took = f"{steps}{watched} {fmt.minutes(snapshot.elapsed_s)}{device}"
    ranks = f", {len(snapshot.ranks)} ranks" if snapshot.ranks else ""
    names = " and ".join((*snapshot.others, snapshot.workload))
    return fmt.plain(f"gpudash: {names}{ended or ','} {took}{ranks}")


def _rate(snapshot: Snapshot) -> Iterator[str]:
    """Yield the rate; where settings have changed, also that of the first ones."""
    units = {"samples/s": snapshot.samples_per_s, "steps/s": snapshot.steps_per_s}
    now = ", ".join(
        f"{fmt.significant(rate)} {unit}" for unit, rate in units.items() if rate is not None
    )
    first = next(iter(snapshot.results), None)
    if first is not None and first.settings != snapshot.settings:
        counted = first.samples_per_s is not None
        rate = first.samples_per_s if counted else first.steps_per_s
        unit = "samples/s" if counted else "steps/s"
        now += f"; {fmt.significant(rate)} {unit} at the start" * (rate is not None)
    if now:
        yield _line("rate", now)


def _limit(snapshot: Snapshot) -> Iterator[str]:
    answer = snapshot.answer
    if answer is not None and answer.limit != "unknown":
        found = ": ".join([answer.title, *answer.evidence[:1]])
        yield fmt.clip(_line("limit", found), WIDTH)


def _verdicts(snapshot: Snapshot) -> Iterator[str]:
    """Yield each comparison, of the same values the last: kept ones first, then differences."""
    running = snapshot.comparison
    every = [*snapshot.verdicts, *([running] if running is not None and running.pairs else [])]
    last = {(one.lever, one.a, one.b, bool(one.doing)): one for one in every}
    ranked = sorted(
        (one for one in last.values() if one.low is not None and (one.best or not one.doing)),
        key=lambda one: (not _is_kept(one, snapshot), not one.proven, one.verdict is None),
    )
    for number, one in enumerate(ranked):
        what = f"{one.lever} {one.a} → {one.b}"
        if one.doing:
            what = f"{phrase(one.start)} → {phrase(one.best)}"
        found = change_of(one)
        kept = ", kept" * _is_kept(one, snapshot)
        none = "" if one.proven or one.verdict is None else "no difference shown, "
        none = "the control failed, " if one.check_passed is False else none
        label = "proven" if one.proven else "A/B" if one.verdict is not None else "so far"
        losses = f", {one.losses}" * (number == 0 and one.proven and not one.doing)
        yield _line(label, f"{what}   {none}{found}, {one.pairs} pairs{kept}{losses}")


def _is_kept(shown: ComparisonShown, snapshot: Snapshot) -> bool:
    tested = shown.best if shown.doing else {shown.lever: shown.b}
    return shown.verdict is not None and tested.items() <= snapshot.settings.items()


def _levers(snapshot: Snapshot, code: Callable[[str, str], OwnLine | None]) -> Iterator[str]:
    """Yield the levers that are not as the training itself has them; of one, the line for it."""
    set_here = changed(snapshot.settings, snapshot.levers)
    own = code(*next(iter(set_here.items()))) if len(set_here) == 1 else None
    if own is not None:
        yield fmt.clip(_line("code", f"{own.where}   {own.after}"), WIDTH)
    elif set_here:
        yield fmt.clip(_line("levers", phrase(set_here)), WIDTH)


def _next(snapshot: Snapshot) -> Iterator[str]:
    """Yield the first proposal whose gain is known."""
    tries = snapshot.answer.tries if snapshot.answer is not None else ()
    for one in tries:
        if one.gain is not None and snapshot.settings.get(one.lever) != one.value:
            gain = f"{one.gain.label}, {'measured' if one.gain.measured else 'an estimate'}"
            yield _line("next", f"{one.lever} {one.before} → {one.value}   {gain}")
            return
