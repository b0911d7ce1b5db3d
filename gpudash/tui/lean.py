"""Imports without what a library brings along and the dashboard never uses: memory, and time."""

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType


def import_without(stand_ins: Mapping[str, object], name: str) -> ModuleType:
    """Import this module, with stand-ins for modules that it imports; None: as if not installed.

    Those that are loaded already stay what they are.
    """
    absent = {one: stand_in for one, stand_in in stand_ins.items() if one not in sys.modules}
    sys.modules.update(absent)  # type: ignore[arg-type]  # None is Python's way to make it fail
    try:
        return importlib.import_module(name)
    finally:
        for one in absent:
            del sys.modules[one]
