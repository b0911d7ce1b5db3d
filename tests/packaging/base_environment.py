"""An environment with gpudash and what its base declares, and nothing else: no torch.

Third-party packages are borrowed from the environment of the tests, one link each.
"""

import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path


def make(place: Path, wheel: Path) -> Path:
    """Make the environment; return its folder of programs."""
    venv.create(place, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    options = ["--python", str(place), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([*pip, *options], check=True, cwd=place)
    (packages,) = place.glob("lib/python*/site-packages")
    (ours,) = packages.glob("gpudash-*.dist-info")
    for one in _needed(Distribution.at(ours), set()):
        for name in {file.parts[0] for file in one.files or () if file.parts[0] != ".."}:
            if not (packages / name).exists():
                (packages / name).symlink_to(Path(str(one.locate_file(name))))
    return place / "bin"


def _needed(of: Distribution, seen: set[str]) -> Iterator[Distribution]:
    """Yield what a distribution requires without any extra, and what that requires."""
    for requirement in of.requires or ():
        name, marker = (
            re.split(r"[^\w.-]", requirement, maxsplit=1)[0],
            requirement.partition(";")[2],
        )
        if "extra" in marker or name in seen:
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:  # for another platform
            continue
        yield found
        yield from _needed(found, seen)
