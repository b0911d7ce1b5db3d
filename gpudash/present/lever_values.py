"""A lever's row and values; only what was measured with the present other levers counts."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from gpudash import format as fmt
from gpudash.diagnosis.proposals import way_back
from gpudash.forecast import Forecast, Need, forecast
from gpudash.protocol.training import Lever
from gpudash.snapshot import Result, Snapshot

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
    acts: bool = True
    """Whether it has an effect on this device."""
    keeps_weights: bool = False
    """Whether a change keeps the weights, as in a user's script."""
    context: str = ""
    """Conditions of the lever's newest A/B: value A, pairs, and levers that differ from now."""
    forecast: str = ""
    """The batch size that would fit in device memory; empty if unknown."""


def rate_unit(results: Iterable[Result]) -> str:
    measured = [row for row in results if row.steps]
    counted = not measured or any(row.samples_per_s is not None for row in measured)
    return "samples/s" if counted else "steps/s"


def measured_values(
    lever: Lever, now: str, default: str, active: Mapping[str, str], snapshot: Snapshot
) -> tuple[MeasuredValue, ...]:
    others = {name: value for name, value in active.items() if name != lever.name}
    verdicts = dict(_verdicts(lever.name, now, others, snapshot))
    expected = fitting(lever, {**active, lever.name: now}, snapshot)
    tried = {row.settings[lever.name] for row in _alike(lever, others, snapshot)}

    def measured(value: str) -> MeasuredValue:
        change = verdicts.get(value)
        proven = fmt.change(change, None, None) + " by an A/B" if change is not None else ""
        return MeasuredValue(value=value, known=proven or _fits(value, expected))

    return tuple(
        measured(value) for value in lever.values or _numbers(lever, {now, default, *tried}, now)
    )


def _alike(lever: Lever, others: Mapping[str, str], snapshot: Snapshot) -> Iterator[Result]:
    """Yield the measured rows whose other levers have the present values."""
    for row in snapshot.results:
        same = {name: value for name, value in row.settings.items() if name != lever.name}
        of_it = row.workload == snapshot.workload and lever.name in row.settings
        if of_it and row.steps and same == others:
            yield row


def _verdicts(
    lever: str, now: str, others: Mapping[str, str], snapshot: Snapshot
) -> Iterator[tuple[str, float]]:
    """Yield values that A/Bs compared with the present one, and the change, oldest first."""
    for shown in snapshot.verdicts:
        if shown.lever != lever or shown.settings != others or shown.change is None:
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


def fitting(lever: Lever, active: Mapping[str, str], snapshot: Snapshot) -> Forecast | None:
    """Return the forecast of a batch that fits under the present other levers; None if unknown."""
    if lever.name != "batch_size":
        return None
    others = {name: value for name, value in active.items() if name != lever.name}
    rows = _alike(lever, others, snapshot)
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
