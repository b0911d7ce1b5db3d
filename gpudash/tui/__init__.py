"""The dashboard: the only place that imports Textual and plotext, and without what it never uses.

That saves memory and time.
"""

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType


def import_without(stand_ins: Mapping[str, object], name: str) -> ModuleType:
    """Import a module, with stand-ins for modules that it imports; None: as if not installed.

    A module that is loaded already is not replaced.
    """
    absent = {one: stand_in for one, stand_in in stand_ins.items() if one not in sys.modules}
    sys.modules.update(absent)  # type: ignore[arg-type]  # None makes an import fail
    try:
        return importlib.import_module(name)
    finally:
        for one in absent:
            del sys.modules[one]


import_without({"ssl": None}, "asyncio")  # OpenSSL takes 4 MB, and the dashboard needs no TLS
