"""The versions of gpudash, Python and what the training and the screen are made of."""

import platform
from importlib.metadata import PackageNotFoundError, version

from gpudash import __version__

PACKAGES = ("torch", "torchvision", "textual", "plotext", "nvidia-ml-py")


def versions() -> dict[str, str | None]:
    """Return them by name, without importing any of it; None for what is not installed."""
    found: dict[str, str | None] = {"gpudash": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found
