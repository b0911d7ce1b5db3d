"""Describe the owners of device memory."""

from gpudash import format as fmt
from gpudash.protocol.inspections import MemoryOwners, Owner


def owners_title(memory: MemoryOwners) -> str:
    """Return the title of the owners' lines."""
    when = "over two steps" if memory.answers else "when memory ran out"
    return f"device memory: at most {fmt.memory(memory.peak_mib)} in tensors {when}"


def owner_lines(memory: MemoryOwners) -> list[str]:
    """Return a line for each owner: how much, what for, and where it was allocated."""
    if not memory.owners:
        return ["nothing was allocated"]
    sizes = [fmt.memory(one.mib) for one in memory.owners]
    width, widest = max(map(len, sizes)), max(len(one.use) for one in memory.owners)
    return [
        f"{size:>{width}}  {one.use:<{widest}}  {_place(one)}"
        for size, one in zip(sizes, memory.owners, strict=True)
    ]


def _place(one: Owner) -> str:
    times = f", {one.count} allocations" if one.count > 1 else ""
    if not one.file:
        return f"line not known{times}"
    return fmt.plain(f"{fmt.source_line(one.file, one.line)} in {one.function}{times}")
