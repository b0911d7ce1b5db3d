"""Limits of this process's control group, as containers and batch systems set them.

Both versions of control groups are read. A limit of a group above counts too.
"""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
UNLIMITED_BYTES = 1 << 60
"""Version 1 has a number like this where there is no limit."""


def cores_quota() -> float | None:
    """Return how many cores' time this process and its group may take; None without a limit."""
    found = []
    for folder in _folders(""):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        found += _share(quota, period)
    for folder in _folders("cpu"):
        quota, period = (_text(folder / f"cpu.cfs_{one}_us") for one in ("quota", "period"))
        found += _share(quota, period)
    return min(found, default=None)


def memory_limit_bytes() -> int | None:
    """Return how much memory this process's group may hold; None without a limit."""
    texts = [_text(folder / "memory.max") for folder in _folders("")]
    texts += [_text(folder / "memory.limit_in_bytes") for folder in _folders("memory")]
    limits = [int(text) for text in texts if text.isdecimal()]
    return min((one for one in limits if one < UNLIMITED_BYTES), default=None)


def _share(quota: str, period: str) -> list[float]:
    if not (quota.isdecimal() and period.isdecimal() and int(period)):  # "max", or -1
        return []
    return [int(quota) / int(period)]


def _folders(controller: str) -> Iterator[Path]:
    """Yield the group's folder and those above it; of version 2 for an empty controller."""
    for line in _text(MEMBERSHIP).splitlines():
        number, controllers, place = (*line.split(":", 2), "", "")[:3]
        if controllers.split(",").count(controller) == 0 or (number == "0") != (not controller):
            continue
        root = ROOT / controllers if controller else ROOT
        if not root.is_dir():  # mounted alone
            root = ROOT / controller
        own = root / place.lstrip("/")
        if not own.is_dir():  # a container sees its own group as the root
            own = root
        yield from (one for one in (own, *own.parents) if one.is_relative_to(root))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
