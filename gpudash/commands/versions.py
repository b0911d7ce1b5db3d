"""Find the versions of gpudash, Python and the main packages."""

import platform
from importlib.metadata import PackageNotFoundError, version

from gpudash import __version__

PACKAGES = ("torch", "torchvision", "textual", "plotext", "nvidia-ml-py")


def versions() -> dict[str, str | None]:
    """Return versions by name, without importing the packages; None if not installed."""
    found: dict[str, str | None] = {"gpudash": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found
