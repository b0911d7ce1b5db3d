"""The names of workloads that are not in the catalogue: `FILE.py[:NAME]`, or an entry point's.

Nothing here imports what is named.
"""

import re

GROUP = "gpudash.workloads"
"""Of the entry points by which an installed package offers workloads."""


def is_file(name: str) -> bool:
    """Tell whether the name is `FILE.py` or `FILE.py:NAME`."""
    return parts(name) is not None


def parts(name: str) -> tuple[str, str | None] | None:
    """Return FILE.py and NAME; None where the name is none of a file's."""
    found = re.fullmatch(r"(.+?\.py)(?::(.*))?", name) if name.isprintable() else None
    return (found[1], found[2]) if found else None


def installed() -> dict[str, str]:
    """Return the workloads that installed packages offer: name → `package.module:attribute`."""
    from importlib.metadata import entry_points  # noqa: PLC0415  # milliseconds, seldom needed

    return {one.name: one.value for one in entry_points(group=GROUP)}
