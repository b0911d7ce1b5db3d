"""Files that hold what a test has to see: `GPUDASH_WRITE_SCREENS=1` writes them anew."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]\d+)?")


def lined(lines: Iterable[str]) -> str:
    return "".join(f"{line.rstrip()}\n" for line in lines)


def golden(path: Path, seen: str) -> str:
    """Return what the file holds, or has to hold from now on."""
    if os.environ.get("GPUDASH_WRITE_SCREENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(seen)
    return path.read_text()


def says(path: Path, seen: str) -> bool:
    """Return whether the file says the same: a sum's last digit differs from Python to Python."""
    wanted = golden(path, seen)
    numbers = [[float(one) for one in NUMBER.findall(text)] for text in (seen, wanted)]
    assert NUMBER.sub("#", seen) == NUMBER.sub("#", wanted)
    return numbers[0] == pytest.approx(numbers[1], rel=2e-3)
