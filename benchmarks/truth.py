"""What limits each script of benchmarks/causes, and which levers help it: causes/truth.toml."""

import tomllib
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).parent / "causes" / "truth.toml"


class Truth(NamedTuple):
    """What is right to say of a script on one device."""

    limits: tuple[str, ...]
    """Each of them is right: equal limits are several."""
    best: tuple[str, ...]
    """Levers of which each is right to propose first; none: no lever helps much."""


def truths(device: str) -> dict[str, Truth]:
    """Return the truth of each script on this device, `cuda` or `cpu`."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {
        script: Truth(tuple(row["limits"]), tuple(row["best"]))
        for script, row in ((name, {**one, **one.get(device, {})}) for name, one in table.items())
    }
