"""What a mistyped name was probably meant to be."""

from collections.abc import Iterable


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """Return `; did you mean NAME?` with the nearest valid name; nothing where none is near."""
    from difflib import get_close_matches  # noqa: PLC0415  # milliseconds, for mistakes alone

    names = {name.lower(): name for name in valid}
    near = get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    return f"; did you mean {names[near[0]]}?" if near else ""
