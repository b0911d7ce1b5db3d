"""Messages about unknown names, with the nearest valid one."""

import os
from collections.abc import Iterable


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """Return `; did you mean NAME?` with the nearest valid name; empty if none is near."""
    from difflib import get_close_matches  # noqa: PLC0415  # slow, and only for mistakes

    names = {name.lstrip("-").lower(): name for name in valid}  # dashes do not count as similar
    near = get_close_matches(word.lstrip("-").lower(), names, n=1, cutoff=0.6)
    return f"; did you mean {names[near[0]]}?" if near else ""


def script_like(file: str) -> str:
    """Return `; did you mean NAME.py?` with the nearest name in the folder; empty if none is."""
    folder, name = os.path.split(file)
    try:
        return did_you_mean(name, [one for one in os.listdir(folder or ".") if one.endswith(".py")])  # noqa: PTH208  # importing pathlib is slow
    except OSError:
        return ""


def unknown(what: str, name: str, valid: Iterable[str]) -> str:
    """Return the message about an unknown name, with the valid ones."""
    return f"unknown {what} {name!r}; {_valid(name, valid)}"


def not_valid(what: str, value: str, valid: Iterable[str]) -> str:
    """Return the message about an invalid value, with the valid ones."""
    return f"{what} {value!r} is not valid; {_valid(value, valid)}"


def _valid(given: str, valid: Iterable[str]) -> str:
    names = tuple(valid)
    return f"valid: {', '.join(names)}{did_you_mean(given, names)}"
