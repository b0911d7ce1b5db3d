"""The values that a lever may be given, with what this run knows of each of them.

Only what differs in this lever alone says something about it: rows with the other levers as they
are now, and verdicts of A/Bs run so.
"""

from collections.abc import Iterator, Mapping

import msgspec

from gpudash import format as fmt
from gpudash.snapshot import Result, Snapshot
from workloads.levers import Lever

STEPS_DOWN, STEPS_UP = 2, 4
"""Neighbouring values of a number that are offered."""
FULL = 0.9
"""Share of the device's memory from which an estimate may not fit."""


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
    measured = [row for row in snapshot.results if row.steps]
    counted = not measured or any(row.samples_per_s is not None for row in measured)
    return "samples/s" if counted or lever.name == "batch_size" else "steps/s"


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
    sizes = _memory_by_size(lever, others, snapshot)

    def measured(value: str) -> Measured:
        rate = rates.get(value)
        if value in verdicts:
            return Measured(value=value, rate=rate, change=verdicts[value], how="A/B")
        if rate is None:
            return Measured(value=value, how=_fits(value, sizes, snapshot))
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


def needed_mib(size: int, measured: Mapping[int, float]) -> float | None:
    """Return the memory that batches of this size need, by the two largest that were measured.

    None of a single one, and of a size that is not beyond them.
    """
    if len(measured) < 2:
        return None
    (small, low_mib), (large, high_mib) = sorted(measured.items())[-2:]
    if size <= large or high_mib <= low_mib:
        return None
    return high_mib + (high_mib - low_mib) / (large - small) * (size - large)


def _fits(value: str, sizes: Mapping[int, float], snapshot: Snapshot) -> str:
    """Return whether a batch is estimated to fit; nothing where that is not known."""
    needed = needed_mib(int(value), sizes) if sizes else None
    there_is = snapshot.gpu.number("mem_total_mib") if snapshot.gpu else None
    if needed is None or there_is is None:
        return ""
    return f"{'fits' if needed < FULL * there_is else 'may not fit'}, ~{fmt.memory(needed)}"


def _memory_by_size(
    lever: Lever, others: Mapping[str, str], snapshot: Snapshot
) -> dict[int, float]:
    """Return batch sizes with the memory that they took, the other levers as they are now.

    The training keeps memory that it has had: a row that took no more than those before it does
    not tell what it needs.
    """
    if lever.name != "batch_size":
        return {}
    alike = {row.number for row in _alike(lever, others, snapshot)}
    sizes, most_mib = {}, 0.0
    for row in snapshot.results:
        if row.memory_mib is not None and row.memory_mib > most_mib:
            most_mib = row.memory_mib
            if row.number in alike:
                sizes[int(row.settings[lever.name])] = most_mib
    return sizes
