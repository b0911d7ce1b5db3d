"""Run by the first cell of a notebook whose environment has no gpudash: see `gpudash notebook`.

PYTHON in `%run FILE PYTHON` is that of gpudash's own environment. An old Python can read this.
"""
# mypy: allow-untyped-defs, allow-untyped-calls

import os
import sys

OLDEST, NEWEST = (3, 10), (3, 14)
"""The versions of Python in which gpudash measures."""


def _load(python):
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        here, least, most = ("%d.%d" % one[:2] for one in (sys.version_info, OLDEST, NEWEST))
        print("gpudash measures Python %s to %s, this kernel is Python %s" % (least, most, here))
        return
    from builtins import get_ipython  # type: ignore[attr-defined]  # IPython puts it there
    from importlib.util import find_spec

    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, folder)
    try:
        import _gpudash  # type: ignore[import-not-found]
    finally:
        sys.path.remove(folder)
    _gpudash.python = python
    _gpudash.offer()
    found = find_spec("gpudash")  # a project may have a module of this name
    is_ours = found is not None and found.origin == os.path.join(_gpudash.FOLDER, "__init__.py")
    name = "gpudash" if is_ours else "_gpudash"
    print(get_ipython().extension_manager.load_extension(name) or "", end="")


if __name__ == "__main__":
    _load(sys.argv[1])
    del OLDEST, NEWEST, os, sys, _load  # `%run` would leave them in the notebook
