"""Files that hold what a test has to see: `GPUDASH_WRITE_SCREENS=1` writes them anew."""

import os
from collections.abc import Iterable
from pathlib import Path


def lined(lines: Iterable[str]) -> str:
    return "".join(f"{line.rstrip()}\n" for line in lines)


def golden(path: Path, seen: str) -> str:
    """Return what the file holds, or has to hold from now on."""
    if os.environ.get("GPUDASH_WRITE_SCREENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(seen)
    return path.read_text()
