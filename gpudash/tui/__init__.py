"""The dashboard: the only place that imports Textual, and without what it never uses.

That saves memory and time.
"""

import importlib
import sys


def import_without(absent: str, name: str) -> None:
    """Import a module as if another one, which it imports if it is there, were not installed.

    One that is loaded already stays.
    """
    if absent in sys.modules:
        importlib.import_module(name)
        return
    sys.modules[absent] = None  # type: ignore[assignment]  # makes an import fail
    try:
        importlib.import_module(name)
    finally:
        del sys.modules[absent]


import_without("ssl", "asyncio")  # OpenSSL takes 4 MB, and the dashboard needs no TLS
