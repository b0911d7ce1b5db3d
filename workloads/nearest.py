"""What a mistyped name was probably meant to be."""

from collections.abc import Iterable


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """Return `; did you mean NAME?` with the nearest valid name; nothing where none is near."""
    from difflib import get_close_matches  # noqa: PLC0415  # milliseconds, for mistakes alone

    names = {name.lstrip("-").lower(): name for name in valid}  # dashes make nothing alike
    near = get_close_matches(word.lstrip("-").lower(), names, n=1, cutoff=0.6)
    return f"; did you mean {names[near[0]]}?" if near else ""


def unknown(what: str, name: str, valid: Iterable[str]) -> str:
    """Return the refusal of a name that is none of the valid ones."""
    return f"unknown {what} {name!r}; {_valid(name, valid)}"


def not_valid(what: str, value: str, valid: Iterable[str]) -> str:
    """Return the refusal of a value that is none of the valid ones."""
    return f"{what} {value!r} is not valid; {_valid(value, valid)}"


def _valid(given: str, valid: Iterable[str]) -> str:
    names = tuple(valid)
    return f"valid: {', '.join(names)}{did_you_mean(given, names)}"
