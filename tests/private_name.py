"""gpudash's modules under the name that they have in a training, loaded into the tests' process."""

import importlib
import sys
from pathlib import Path

import gpudash

INJECT = Path(gpudash.__file__).parent / "inject"


def under_private_name(*names):
    """Import modules of gpudash as a training does, without msgspec; nothing stays behind.

    While they stayed, `gpudash.step` would reach them instead of the tests' own hooks.
    """
    sys.path.insert(0, str(INJECT))
    hidden = sys.modules.get("msgspec")
    sys.modules["msgspec"] = None
    try:
        return [importlib.import_module(f"_gpudash.{name}") for name in names]
    finally:
        sys.path.remove(str(INJECT))
        sys.modules["msgspec"] = hidden
        for name in [one for one in sys.modules if one.partition(".")[0] == "_gpudash"]:
            del sys.modules[name]
