"""What several processes exchange in a step, in words: how much, how fast, how much of it shows."""

from math import inf

from gpudash import format as fmt
from gpudash.snapshot import Snapshot

GB = 1e9
MIB = 2**20


def collectives_line(snapshot: Snapshot) -> str:
    """Return it as a clause; empty where it is not known, as in a single process.

    The rank whose collectives take the shortest waits least in them: its time is the links'.
    """
    told = [row for row in snapshot.ranks if row.collective_bus_mib]
    if not told:
        return ""
    row = min(told, key=lambda one: one.collective_ms or inf)
    mib, ms = row.collective_bus_mib or 0.0, row.collective_ms
    if not ms:
        return f"each rank sends {fmt.significant(mib)} MiB a step"
    parts = [f"each rank sends {fmt.significant(mib)} MiB a step in {fmt.milliseconds(ms)} ms"]
    if row.waits_ms is not None:
        parts.append(f"{fmt.percent(min(100 * row.waits_ms / ms, 100.0))} of it exposed")
    bus = fmt.significant(mib * MIB / (ms / 1e3) / GB)
    measured = snapshot.bus_gb_s
    most = "" if measured is None else f" of {fmt.significant(measured)} measured"
    parts.append(f"{bus}{most} GB/s on the bus")
    return ", ".join(parts)
