"""Describe a step's collectives: their bytes, bus bandwidth and exposed share."""

from math import inf

from gpudash import format as fmt
from gpudash.snapshot import Snapshot

GB = 1e9
MIB = 2**20


def collectives_line(snapshot: Snapshot) -> str:
    """Return bytes, time and bandwidth of a step's collectives as a clause; empty if unknown.

    The rank with the shortest collectives waits least in them, so its time is that of the links.
    """
    known = [row for row in snapshot.ranks if row.values.get("collective_bus_mib")]
    if not known:
        return ""
    row = min(known, key=lambda one: one.values.get("collective_ms") or inf)
    mib, ms = row.values["collective_bus_mib"], row.values.get("collective_ms")
    if not ms:
        return f"each rank sends {fmt.significant(mib)} MiB a step"
    parts = [f"each rank sends {fmt.significant(mib)} MiB a step in {fmt.milliseconds(ms)} ms"]
    exposed_ms = row.values.get("collective_exposed_ms", row.waits_ms)
    if exposed_ms is not None:
        parts.append(f"{fmt.percent(min(100 * exposed_ms / ms, 100.0))} of it exposed")
    bus = fmt.significant(mib * MIB / (ms / 1e3) / GB)
    measured = snapshot.bus_gb_s
    most = "" if measured is None else f" of {fmt.significant(measured)} measured"
    parts.append(f"{bus}{most} GB/s on the bus")
    return ", ".join(parts)
