"""The values that a lever may be given, with what this run knows of each of them.

Only what differs in this lever alone says something about it: rows with the other levers as they
are now, and verdicts of A/Bs run so.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from gpudash import format as fmt
from gpudash.forecast import Forecast, Need, forecast
from gpudash.snapshot import Result, Snapshot
from workloads.levers import Lever

STEPS_DOWN, STEPS_UP = 2, 4
"""Neighbouring values of a number that are offered."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A value, and what is known of it here."""

    value: str
    rate: float | None = None
    """In the unit of `unit_of`."""
    change: float | None = None
    """Against the value set now; 0.05 is 5 % faster."""
    how: str = ""
    """Where that is from: `row 3`, `A/B`, or an estimate; empty where nothing is known."""


def unit_of(lever: Lever, snapshot: Snapshot) -> str:
    """Return what rates are told in: samples/s, steps/s where no samples are counted."""
    return "samples/s" if lever.name == "batch_size" else rate_unit(snapshot.results)


def rate_unit(results: Iterable[Result]) -> str:
    """Return what the rates of these rows are told in."""
    measured = [row for row in results if row.steps]
    counted = not measured or any(row.samples_per_s is not None for row in measured)
    return "samples/s" if counted else "steps/s"


def measured_values(
    lever: Lever, now: str, default: str, active: Mapping[str, str], snapshot: Snapshot
) -> tuple[Measured, ...]:
    """Return the lever's values in their order, `now` among them."""
    in_samples = unit_of(lever, snapshot) == "samples/s"
    others = {name: value for name, value in active.items() if name != lever.name}
    rows = {row.settings[lever.name]: row for row in _alike(lever, others, snapshot)}
    rates = {v: row.samples_per_s if in_samples else row.steps_per_s for v, row in rows.items()}
    verdicts = dict(_verdicts(lever.name, now, others, snapshot))
    base = rates.get(now)
    expected = fitting(lever, {**active, lever.name: now}, snapshot)

    def measured(value: str) -> Measured:
        rate = rates.get(value)
        if value in verdicts:
            return Measured(value=value, rate=rate, change=verdicts[value], how="A/B")
        if rate is None:
            return Measured(value=value, how=_fits(value, expected))
        change = rate / base - 1 if base and value != now else None
        return Measured(value=value, rate=rate, change=change, how=f"row {rows[value].number}")

    return tuple(
        measured(value) for value in lever.values or _numbers(lever, {now, default, *rows}, now)
    )


def _alike(lever: Lever, others: Mapping[str, str], snapshot: Snapshot) -> Iterator[Result]:
    """Yield the measured rows that differ from the present settings in this lever at most."""
    for row in snapshot.results:
        same = {name: value for name, value in row.settings.items() if name != lever.name}
        of_it = row.workload == snapshot.workload and lever.name in row.settings
        if of_it and row.steps and same == others:
            yield row


def _verdicts(
    lever: str, now: str, others: Mapping[str, str], snapshot: Snapshot
) -> Iterator[tuple[str, float]]:
    """Yield, oldest first, what A/Bs have set against the present value, and the change."""
    for shown in snapshot.verdicts:
        if shown.lever != lever or shown.settings != others or shown.change is None:
            continue
        if shown.a == now:
            yield shown.b, shown.change
        elif shown.b == now and shown.change > -1:
            yield shown.a, 1 / (1 + shown.change) - 1


def _numbers(lever: Lever, known: set[str], now: str) -> list[str]:
    """Return the known values and the neighbours of the present one."""
    values = set(known)
    for direction, steps in ((-1, STEPS_DOWN), (1, STEPS_UP)):
        value = now
        for _ in range(steps):
            value = lever.step(value, direction)
            values.add(value)
    return sorted(values, key=int)


# ── whether a batch fits ────────────────────────────────────────────────────────────────


def fitting(lever: Lever, active: Mapping[str, str], snapshot: Snapshot) -> Forecast | None:
    """Return which batch would fit, the other levers as they are; None where that is not known."""
    if lever.name != "batch_size":
        return None
    others = {name: value for name, value in active.items() if name != lever.name}
    rows = _alike(lever, others, snapshot)
    needs = {
        int(row.settings[lever.name]): Need(row.peak_mib, row.held_mib)
        for row in rows
        if row.peak_mib is not None and row.held_mib is not None
    }
    return forecast(needs, _capacity_mib(snapshot))


def _capacity_mib(snapshot: Snapshot) -> float | None:
    """Return what the training holds and what nobody does; None where either is not read."""
    if snapshot.gpu is None or snapshot.host is None:
        return None
    free, reserved = snapshot.gpu.number("mem_free_mib"), snapshot.host.number("mem_reserved_mib")
    return None if free is None or reserved is None else free + reserved


def _fits(value: str, expected: Forecast | None) -> str:
    """Return whether a batch is estimated to fit; nothing where that is not known."""
    if expected is None:
        return ""
    tensors_mib, held_mib = expected.tensors.at(int(value)), expected.held.at(int(value))
    if held_mib <= expected.capacity_mib:
        return f"fits, ~{fmt.memory(held_mib)}"
    verdict = "does not fit" if tensors_mib > expected.capacity_mib else "may not fit"
    return f"{verdict}, ~{fmt.memory(tensors_mib)}"
