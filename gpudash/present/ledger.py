"""The ledger: each lever with its values, and what it is worth as estimated or as proven.

Only what was measured with the present other levers counts.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import IntEnum

import msgspec
from msgspec.structs import replace

from gpudash import format as fmt
from gpudash.diagnosis.effects import EFFECTS, helps_of
from gpudash.diagnosis.proposals import is_of_now, way_back
from gpudash.forecast import Forecast, Need, forecast
from gpudash.present.change_axis import Axis, ChangeInterval, interval_of, shared_axis
from gpudash.protocol.answer import LEAST_PCT, Answer, Gain, Try
from gpudash.protocol.records import Settings
from gpudash.protocol.session import ComparisonShown
from gpudash.protocol.training import Lever
from gpudash.snapshot import Result, Snapshot
from workloads.levers import AUTO

NO_DIFFERENCE = "no difference"
LEAST_IN_SIGHT = 4
"""Fewest rows of a folded ledger, if there are as many."""
STEPS_DOWN, STEPS_UP = 2, 4
"""Number of neighbouring values offered for a number."""


class MeasuredValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value of a lever, and what an A/B of this run has shown of it."""

    value: str
    known: str = ""
    """The change against the present value, or whether a batch fits into memory."""


class LeverRow(msgspec.Struct, frozen=True, kw_only=True):
    """A lever as the panel shows it."""

    lever: Lever
    value: str
    """The active value; before a start, the planned one."""
    pending: str | None
    """The requested value that is not active yet."""
    default: str = ""
    """Its default on this device, if that is another one than elsewhere."""
    acts: bool = True
    """Whether it has an effect on this device."""
    keeps_weights: bool = False
    """Whether a change keeps the weights, as in a user's script."""
    context: str = ""
    """Conditions of the lever's newest A/B: value A, pairs, and levers that differ from now."""
    forecast: str = ""
    """The batch size that would fit in device memory; empty if unknown."""

    @property
    def is_set(self) -> bool:
        """Whether it has a value that the user chose, or soon will."""
        own = self.default or self.lever.default
        return self.pending is not None or self.value != own != AUTO


class Standing(IntEnum):
    """The order of the rows; from `NOT_FORESEEN` on they are folded, unless they are set."""

    FORESEEN = 0
    UNKNOWN = 1
    PROVEN = 2
    NOT_FORESEEN = 3
    MINOR = 4
    FIXED = 5


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A lever, a change of it, and what the change is worth."""

    row: LeverRow
    standing: Standing
    before: str = ""
    """The left value: the gain is that of the right one over it."""
    after: str = ""
    """The right value; empty if there is no change to speak of."""
    gain: Gain | None = None
    """An estimate."""
    proof: ChangeInterval | None = None
    """What an A/B has shown."""
    worth: str = ""
    """The figure as text."""
    state: str = ""
    """How the figure is known, what it takes to know it, or why there is none; empty for an
    estimate."""
    is_running: bool = False
    """Whether an A/B of it runs."""
    stays: bool = False
    """Whether it was in sight before: on a busy machine what is foreseen comes and goes."""

    @property
    def can_fold(self) -> bool:
        """Whether it can neither be tried nor is proven nor set, and was not with these values."""
        return self.standing >= Standing.NOT_FORESEEN and not (self.row.is_set or self.stays)

    @property
    def is_undecided(self) -> bool:
        """Whether an A/B has shown no difference."""
        return self.proof is not None and self.proof[0] <= 0 <= self.proof[2]

    @property
    def ends(self) -> tuple[float, ...]:
        """The ends of estimate or proof, as relative changes."""
        if self.proof is not None:
            return self.proof[0], self.proof[2]
        if self.gain is None:
            return ()
        return (self.gain.low_pct or 0.0) / 100, self.gain.high_pct / 100


def ledger(
    rows: Sequence[LeverRow], snapshot: Snapshot, before: Sequence[LedgerRow] = ()
) -> tuple[LedgerRow, ...]:
    """Return the rows in order; what was in sight in `before`, with the same values, stays so."""
    answer = snapshot.answer or Answer(limit="none", title="")
    tries = {one.lever: one for one in reversed(answer.tries)}  # the best of each lever
    order = {one.lever: index for index, one in reversed([*enumerate(answer.tries)])}
    is_same = _values(rows) == _values([one.row for one in before])
    stay = {one.row.lever.name for one in before if is_same and not one.can_fold}
    now = [_row(one, tries.get(one.lever.name), answer, snapshot) for one in rows]
    found = [replace(one, stays=one.row.lever.name in stay) for one in now]

    def worth(one: LedgerRow) -> tuple[bool, int, float]:
        proven = -one.proof[1] if one.proof is not None else 0.0
        by_answer = order.get(one.row.lever.name, 0)
        by = proven if one.standing is Standing.PROVEN else by_answer
        return one.can_fold, one.standing, by

    return tuple(sorted(found, key=worth))


def _values(rows: Sequence[LeverRow]) -> Settings:
    return {one.lever.name: one.value for one in rows}


def unfolded(rows: Sequence[LedgerRow]) -> int:
    """Return how many of the first rows are always in sight."""
    count = max(sum(not one.can_fold for one in rows), LEAST_IN_SIGHT)
    return count if len(rows) > count + 1 else len(rows)  # one more takes the room of its fold


def axis_of(rows: Sequence[LedgerRow], shown: ComparisonShown | None) -> Axis:
    """Return the one axis of the ledger and of the intervals of the A/B below it.

    It stands still while an A/B closes in, as the answer does: of its intervals the first counts.
    """
    first = shown.history[:1] if shown is not None and not shown.is_over else ()
    return shared_axis(end for ends in (*(row.ends for row in rows), *first) for end in ends)


def legend(rows: Sequence[LedgerRow], unit: str) -> Iterator[str]:
    """Yield the unit of the figures, and how they are known where some are."""
    yield unit
    if any(one.gain is not None for one in rows):
        yield "░ estimated"
    if any(one.proof is not None for one in rows):
        yield "● proven"


def fold_text(folded: Sequence[LedgerRow]) -> str:
    """Return how many rows are folded, and why: `9 more: 4 need a GPU, 5 not foreseen`."""
    kinds = Counter(_fold_kind(one) for one in folded)
    return f"{len(folded)} more: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}"


def _fold_kind(one: LedgerRow) -> str:
    if one.standing is Standing.FIXED:
        return "cannot change" if one.row.acts else "need a GPU"
    return one.worth or "not foreseen"


def _row(row: LeverRow, proposed: Try | None, answer: Answer, snapshot: Snapshot) -> LedgerRow:
    name, shown, settings = row.lever.name, snapshot.comparison, snapshot.settings
    if shown is not None and shown.lever == name and not shown.is_over and not shown.doing:
        gain = proposed.gain if proposed is not None and proposed.value == shown.b else None
        return LedgerRow(
            row=row,
            standing=Standing.FORESEEN,
            before=shown.a,
            after=shown.b,
            gain=gain,
            worth=gain.label if gain is not None else "",
            state="A/B runs",
            is_running=True,
        )
    if row.lever.refusal or not row.acts:
        why = row.lever.refusal or "needs a GPU"
        return LedgerRow(row=row, standing=Standing.FIXED, before=row.value, state=why)
    number, proof = _newest(name, row.value, snapshot.verdicts)
    is_fresh = proof is not None and is_of_now(proof, settings)
    is_answered = proof is not None and (
        proposed is None or (is_fresh and proposed.value in (proof.a, proof.b))
    )
    if proof is not None and is_answered:
        return _proven(row, proof, number, is_fresh=is_fresh)
    if proposed is not None:
        return _proposed(row, proposed)
    if _is_idle(row, settings):
        return LedgerRow(row=row, standing=Standing.FIXED, before=row.value, state="no loader here")
    after = row.lever.step(row.value, 1) if row.lever.kind == "switch" else ""
    standing, worth = Standing.NOT_FORESEEN, ""
    if name in answer.minor:
        standing, worth = Standing.MINOR, f"below {LEAST_PCT:.0f} %"
    return LedgerRow(row=row, standing=standing, before=row.value, after=after, worth=worth)


def _is_idle(row: LeverRow, settings: Settings) -> bool:
    helps = helps_of(row.lever).values()
    about_loading = bool(helps) and all(EFFECTS[one].loads for one in helps)
    is_fed = settings.get("data", "loader") != "loader"
    return about_loading and is_fed and row.lever.name != "data"


def _proposed(row: LeverRow, proposed: Try) -> LedgerRow:
    gain = proposed.gain
    state = f"takes ~{proposed.takes_s:.0f} s" if proposed.takes_s is not None else ""
    if gain is not None:
        state = "rehearsed" if gain.how == "rehearsed" else ""
        state = "moves losses" if row.lever.numerics else state
    if any(EFFECTS[one].is_probe for one in helps_of(row.lever).values()):
        state = "a probe"
    return LedgerRow(
        row=row,
        standing=Standing.UNKNOWN if gain is None else Standing.FORESEEN,
        before=row.value,
        after=proposed.value,
        gain=gain,
        worth="unknown" if gain is None else gain.label,
        state=state,
    )


def _proven(row: LeverRow, proof: ComparisonShown, number: int, *, is_fresh: bool) -> LedgerRow:
    interval, before, after = interval_of(proof), proof.a, proof.b
    assert interval is not None
    low, change, high = interval
    if row.value == proof.b and high < 0:  # going back is what gains
        before, after = after, before
        low, change, high = map(way_back, (high, change, low))
    is_kept = row.value == after and low > 0
    if low <= 0 <= high:
        state = NO_DIFFERENCE
    elif high < 0:
        state = "slower"
    else:
        state = f"A/B {number}{', kept' if is_kept else ''}"
    if not is_fresh and not is_kept:
        state = f"A/B {number}, older"
    return LedgerRow(
        row=row,
        # what is faster and not active is to be set
        standing=Standing.FORESEEN if is_fresh and low > 0 and not is_kept else Standing.PROVEN,
        before=before,
        after=after,
        proof=(low, change, high),
        worth=fmt.change(change, low, high),
        state=state,
    )


def _newest(
    name: str, now: str, verdicts: Sequence[ComparisonShown]
) -> tuple[int, ComparisonShown | None]:
    """Return the newest verdict about the present value, and its number from 1."""
    for number in range(len(verdicts), 0, -1):
        one = verdicts[number - 1]
        has_interval = one.verdict is not None and interval_of(one) is not None
        if one.lever == name and has_interval and now in (one.a, one.b) and not one.doing:
            return number, one
    return 0, None


# ── values ──────────────────────────────────────────────────────────────────────────────


def measured_values(
    lever: Lever, now: str, default: str, active: Settings, snapshot: Snapshot
) -> tuple[MeasuredValue, ...]:
    verdicts = dict(_verdicts(lever.name, now, active, snapshot))
    expected = fitting(lever, {**active, lever.name: now}, snapshot)
    tried = {row.settings[lever.name] for row in _alike(lever, active, snapshot)}

    def measured(value: str) -> MeasuredValue:
        change = verdicts.get(value)
        proven = fmt.change(change, None, None) + " by an A/B" if change is not None else ""
        return MeasuredValue(value=value, known=proven or _fits(value, expected))

    return tuple(
        measured(value) for value in lever.values or _numbers(lever, {now, default, *tried}, now)
    )


def _alike(lever: Lever, active: Settings, snapshot: Snapshot) -> Iterator[Result]:
    """Yield the measured rows whose other levers have the present values."""
    others = {name: value for name, value in active.items() if name != lever.name}
    for row in snapshot.results:
        same = {name: value for name, value in row.settings.items() if name != lever.name}
        of_it = row.workload == snapshot.workload and lever.name in row.settings
        if of_it and row.steps and same == others:
            yield row


def _verdicts(
    lever: str, now: str, active: Settings, snapshot: Snapshot
) -> Iterator[tuple[str, float]]:
    """Yield values that A/Bs compared with the present one, and the change, oldest first."""
    for shown in snapshot.verdicts:
        if shown.lever != lever or shown.change is None or not is_of_now(shown, active):
            continue
        if shown.a == now:
            yield shown.b, shown.change
        elif shown.b == now and shown.change > -1:
            yield shown.a, way_back(shown.change)


def _numbers(lever: Lever, known: set[str], now: str) -> list[str]:
    values = set(known)
    for direction, steps in ((-1, STEPS_DOWN), (1, STEPS_UP)):
        value = now
        for _ in range(steps):
            value = lever.step(value, direction)
            values.add(value)
    return sorted(values, key=int)


# ── whether a batch fits ────────────────────────────────────────────────────────────────


NEEDS = ("mem_peak_mib", "mem_reserved_mib")
"""What a batch needs, in the order of `Need`."""


def fitting(lever: Lever, active: Settings, snapshot: Snapshot) -> Forecast | None:
    """Return the forecast of a batch that fits under the present other levers; None if unknown."""
    if lever.name != "batch_size":
        return None
    rows = _alike(lever, active, snapshot)
    needs = {
        int(row.settings[lever.name]): Need(*(row.values[name] for name in NEEDS))
        for row in rows
        if all(name in row.values for name in NEEDS)
    }
    free = snapshot.gpu.number("mem_free_mib") if snapshot.gpu else None
    held = snapshot.host.number("mem_reserved_mib") if snapshot.host else None
    return forecast(needs, None if free is None or held is None else free + held)


def _fits(value: str, expected: Forecast | None) -> str:
    if expected is None:
        return ""
    tensors_mib, held_mib = expected.tensors.at(int(value)), expected.held.at(int(value))
    if held_mib <= expected.capacity_mib:
        return f"fits, ~{fmt.memory(held_mib)}"
    verdict = "does not fit" if tensors_mib > expected.capacity_mib else "may not fit"
    return f"{verdict}, ~{fmt.memory(tensors_mib)}"
