"""What workloads import that gpudash itself does without, and how it is installed.

Neither is imported here: whoever lists workloads or looks at recordings needs none of it.
"""

import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from workloads.levers import LeverError

EXTRA = "gpudash[workloads]"
BESIDE_TORCH = {
    "workloads.augment": ("torchvision",),
    "workloads.jpeg_input": ("torchvision", "scipy", "PIL"),
}
"""What the modules of workloads import beside torch."""
INSTALLERS = {"uv-receipt.toml": "uv tool install", "pipx_metadata.json": "pipx install --force"}
"""Commands that install into an environment, by the file that they leave in it."""
USUAL = "pip install"


def check(name: str, modules: Iterable[str]) -> None:
    """Raise LeverError if some of the modules that this workload imports are not installed."""
    if lacking := missing(modules):
        raise LeverError(
            f"{name} needs {', '.join(lacking)} in gpudash's own environment; "
            f"{install_line()} brings what is missing"
        )


def missing(modules: Iterable[str]) -> list[str]:
    """Return those of these modules that are not installed, without importing any."""
    return [module for module in modules if not _is_installed(module)]


def install_line() -> str:
    """Return the command that installs what all workloads need into this environment."""
    found = (how for file, how in INSTALLERS.items() if (Path(sys.prefix) / file).is_file())
    return f"{next(found, USUAL)} '{EXTRA}'"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # imported from nowhere, such as a stand-in
        return True
