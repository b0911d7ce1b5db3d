"""Finds which lines held device memory at its peak, from a snapshot of torch's allocator.

Undoing its events gives the allocations before them. Replaying them leads to the peak.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ..protocol.inspections import MemoryUse, Owner

MIB = 2**20
MOST_OWNERS = 20
Snapshot: TypeAlias = Mapping[str, Any]
"""As `torch.cuda.memory._snapshot` returns it."""
Event: TypeAlias = Mapping[str, Any]
Frames: TypeAlias = Sequence[Mapping[str, Any]]


class Allocation(NamedTuple):
    """A piece of memory that was held at the peak."""

    address: int
    bytes: int
    frames: Frames | None = None
    """The Python stack of the request, innermost first; None: it was made before the recording."""
    was_freed: bool = False
    """It was freed after the peak, during the recording."""


def at_the_peak(snapshot: Snapshot, device: int) -> list[Allocation]:
    """Count a failed request as if it had succeeded."""
    events = list(_events(snapshot, device))
    held = {address: Allocation(address, size) for address, size in _before(snapshot, device)}
    peak = _fullest(sum(one.bytes for one in held.values()), events)
    for event in events[:peak]:
        if event["action"] == "free_requested":
            held.pop(event["addr"], None)
        elif event["action"] == "alloc" or event is events[peak - 1]:
            address = event.get("addr", 0) if event["action"] == "alloc" else 0
            held[address] = Allocation(address, event["size"], event.get("frames", ()))
    freed = {one["addr"] for one in events[peak:] if one["action"] == "free_requested"}
    return [one._replace(was_freed=one.address in freed) for one in held.values()]


def owners(
    allocations: Iterable[Allocation], uses: Mapping[int, MemoryUse], inside: tuple[str, ...]
) -> tuple[Owner, ...]:
    """Name the innermost frame whose file is not below a folder of `inside`."""
    found: dict[tuple[str, int, str, MemoryUse], list[int]] = defaultdict(list)
    for one in allocations:
        frame = _nearest(one.frames or (), inside)
        place = (frame["filename"], frame["line"], frame["name"]) if frame else ("", 0, "")
        owner = (*place, uses.get(one.address) or _use(one))
        found[owner].append(one.bytes)
    made = (
        Owner(file=file, line=line, function=name, use=use, mib=sum(sizes) / MIB, count=len(sizes))
        for (file, line, name, use), sizes in found.items()
    )
    return tuple(sorted(made, key=lambda one: -one.mib)[:MOST_OWNERS])


def _use(one: Allocation) -> MemoryUse:
    if one.frames is None:
        return "from before"
    if not one.frames:
        return "backward pass"
    return "activations" if one.was_freed else "other"


def _nearest(frames: Frames, inside: tuple[str, ...]) -> Mapping[str, Any] | None:
    outside = (one for one in frames if not one["filename"].startswith((*inside, "<")))
    return next(outside, frames[0] if frames else None)


def _events(snapshot: Snapshot, device: int) -> Iterator[Event]:
    for event in snapshot["device_traces"][device : device + 1]:
        yield from (one for one in event if one["action"] in ("alloc", "free_requested", "oom"))


def _before(snapshot: Snapshot, device: int) -> Iterable[tuple[int, int]]:
    held: dict[int, int] = {}
    for segment in snapshot["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:  # blocks fill their segment
            if segment["device"] == device and block["state"] == "active_allocated":
                held[address] = block["requested_size"]
            address += block["size"]
    for event in reversed(list(_events(snapshot, device))):
        if event["action"] == "alloc":
            held.pop(event["addr"], None)
        elif event["action"] == "free_requested":
            held[event["addr"]] = event["size"]
    return held.items()


def _fullest(used: int, events: Sequence[Event]) -> int:
    most, found = used, 0
    for number, event in enumerate(events, 1):
        now = used - event["size"] if event["action"] == "free_requested" else used + event["size"]
        if now > most:
            most, found = now, number
        used = used if event["action"] == "oom" else now
    return found
