"""The dashboard, which alone imports Textual, without unused parts: that saves memory and time."""

import importlib
import sys


def _import_without(absent: str, name: str) -> None:
    """Import a module as if `absent` were not installed, unless that is loaded already."""
    if absent in sys.modules:
        importlib.import_module(name)
        return
    sys.modules[absent] = None  # type: ignore[assignment]  # makes an import fail
    try:
        importlib.import_module(name)
    finally:
        del sys.modules[absent]


_import_without("ssl", "asyncio")  # OpenSSL takes 4 MB, and the dashboard needs no TLS
