"""Runs at the start of each Python process of a `gpudash run`, before the script; see `_gpudash`.

Python imports the first module of this name. This one removes its folder from the path and imports
the user's own. It never prints and never raises, and imports nothing that the script could shadow.
Any Python can read it, Python 2 too.
"""
# mypy: allow-untyped-defs, allow-untyped-calls

import os
import sys

OLDEST, NEWEST = (3, 10), (3, 14)
"""The versions of Python in which gpudash measures: more it does not know."""


def _step_aside(folder):
    """Import the `sitecustomize` that Python would have found without this one."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != folder]
    this = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401, PLC0415
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = this  # Python expects the module it has imported


def _mark(what, why=""):
    try:
        path = os.path.join(os.environ["_GPUDASH_RUN"], str(os.getpid()) + "." + what)
        mark = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(mark, why.encode("utf-8", "replace"))
        os.close(mark)
    except (OSError, KeyError):  # the script may have cleared its environment since
        pass


def _begin():
    folder = os.path.dirname(os.path.abspath(__file__))
    try:
        if os.path.isdir(os.environ.get("_GPUDASH_RUN", "")):
            _mark("python")
            if not OLDEST <= sys.version_info[:2] <= NEWEST:
                _mark("oldpython" if sys.version_info[:2] < OLDEST else "newpython")
                return
            import _gpudash  # type: ignore[import-not-found]  # noqa: PLC0415  # not for others

            _gpudash.begin(_mark)
    finally:
        _step_aside(folder)


_begin()
__file__ = "<gpudash>/sitecustomize.py"  # see `UNCOUNTED` of _gpudash
