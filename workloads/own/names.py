"""The names of workloads outside of the catalogue: `FILE.py[:NAME]`, or an entry point's.

Nothing here imports a workload.
"""

import re

GROUP = "gpudash.workloads"
"""The group of entry points for the workloads of installed packages."""


def is_file(name: str) -> bool:
    """Return whether the name is `FILE.py` or `FILE.py:NAME`."""
    return parts(name) is not None


def parts(name: str) -> tuple[str, str | None] | None:
    """Return FILE.py and NAME; None if the name is not that of a file."""
    found = re.fullmatch(r"(.+?\.py)(?::(.*))?", name) if name.isprintable() else None
    return (found[1], found[2]) if found else None


def installed() -> dict[str, str]:
    """Return the workloads of installed packages: name → `package.module:attribute`."""
    from importlib.metadata import entry_points  # noqa: PLC0415  # slow, and seldom needed

    return {one.name: one.value for one in entry_points(group=GROUP)}
