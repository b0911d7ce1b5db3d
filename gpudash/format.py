"""Short texts: numbers, `–` for what was not measured, NaN and infinity; plain and ASCII text."""

import math
import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from pathlib import PurePath
from signal import Signals
from typing import TypeGuard

ABSENT = "–"
"""Shown for None: not measured, which is not zero."""

_THOUSANDS = ("", "k", "M", "G", "T")
_LAST_NUMBER, _GOES_ON = re.compile(r"\d[\d.,]*$"), re.compile(r"[.,]?\d")
_CONTROL_PICTURES = 0x2400
_DELETE = 0x7F


def is_measured(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def measured(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if is_measured(value)]


def significant(value: float | None) -> str:
    """Plain notation: `0.043`, `4.31`, `43.1`, `4,310`."""
    if not is_measured(value):
        return ABSENT
    size = abs(value)
    if 0 < size < 0.0005:
        return f"{value:.1e}"
    decimals = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.1 or size == 0 else 3
    return f"{value:,.{decimals}f}"


def loss(value: float | None) -> str:
    """NaN and infinity are shown, as they are findings and not missing values."""
    if value is None:
        return ABSENT
    return f"{value:.4g}" if is_measured(value) else str(value)


def figure(value: float | None) -> str:
    if value is None:
        return ABSENT
    return f"{value:.4g}" if value < 10 else f"{value:,.{int(value < 1000)}f}"


def change(change: float, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return f"{_signed_pct(change)} %"
    return f"{_signed_pct(change)} % [{_signed_pct(low)}, {_signed_pct(high)}]"


def _signed_pct(change: float) -> str:
    if change > 99.99:
        return "> +9999"
    return f"{100 * change:+z.{0 if change > 9.99 else 1}f}"


def milliseconds(value: float | None) -> str:
    if not is_measured(value):
        return ABSENT
    return f"{value:,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def compact(value: float | None) -> str:
    """In at most five characters: `0`, `2.5`, `750`, `1.5k`, `20M`."""
    if not is_measured(value):
        return ABSENT
    power = 0
    while abs(value) >= 1000 and power < len(_THOUSANDS) - 1:
        value /= 1000
        power += 1
    return f"{value:.3g}{_THOUSANDS[power]}"


def count(value: int | None) -> str:
    return ABSENT if value is None else f"{value:,}"


def steps(value: int) -> str:
    """No separators, as programs read it too: `1 step`, `1234 steps`."""
    return f"{value} step{'s' * (value != 1)}"


def pairs(value: int) -> str:
    return f"{value} pair{'s' * (value != 1)}"


def starts(value: int) -> str:
    return f"{value} start{'s' * (value != 1)} of each"


def percent(value: float | None) -> str:
    return f"{value:z.0f} %" if is_measured(value) else ABSENT  # z: never -0


def memory(mib: float | None) -> str:
    """`812 MiB`, or `11.4 GiB` from one GiB upwards."""
    if not is_measured(mib):
        return ABSENT
    return f"{mib:.0f} MiB" if mib < 1024 else f"{mib / 1024:.1f} GiB"


def clock(seconds: float) -> str:
    whole = int(seconds) if math.isfinite(seconds) and seconds > 0 else 0
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def minutes(seconds: float) -> str:
    hours, rest = clock(seconds).split(":", 1)
    return rest.removeprefix("0") if hours == "0" else f"{hours}:{rest}"


def cores(cpu_pct: float | None, there_are: int | None = None) -> str:
    if not is_measured(cpu_pct):
        return ABSENT
    of = f" of {there_are}" if there_are else ""
    return f"{cpu_pct / 100:,.{2 if 0 < cpu_pct < 10 else 1}f}{of} cores"


def with_unit(value: float | None, unit: str, decimals: int = 0) -> str:
    if not is_measured(value):
        return ABSENT
    return f"{value:,.{decimals}f} {unit}"


_AS_READ = {
    "%": percent,
    "MiB": memory,
    "ms": milliseconds,
    "steps/s": significant,
    "samples/s": significant,
    "tokens/s": significant,
}


def quantity(value: float | str | None, unit: str) -> str:
    if isinstance(value, str):
        return value
    if unit in _AS_READ:
        return _AS_READ[unit](value)
    return with_unit(value, unit, 1 if unit == "GiB" else 0)


def clip(text: str, width: int) -> str:
    """Never cut a number within its digits: it would be another number."""
    if len(text) <= width:
        return text
    if width <= 0:
        return ""
    kept, left = text[: width - 1], text[width - 1 :]
    kept = _LAST_NUMBER.sub("", kept) if _GOES_ON.match(left) else kept
    return f"{kept.rstrip('…')}…"


def source_line(file: str, line: int) -> str:
    return f"{'/'.join(PurePath(file).parts[-2:])}:{line}"


def signal_name(number: int) -> str:
    """`signal N` for those without a name, as most real-time ones."""
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


def plain(text: str) -> str:
    """Turn control characters into pictures (`␛`), which a terminal would obey."""
    text = text.expandtabs(8)
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x20:
        return chr(_CONTROL_PICTURES + code)
    if code == _DELETE:
        return "␡"
    return " " if character.isspace() and code not in (0x85, 0x2028, 0x2029) else "�"


LIKE = {
    "-": "─╴╶╌┄–—−▄↔▔",
    "|": "│┊┆▏",
    "+": "├┤┬┴┼╭╮╰╯┌┐└┘▆✓",
    ".": "▁▂▎▍░·•",
    ":": "▃▌▋▊▉▐▀▒",
    "=": "━▅≡‖",
    "*": "▇●",
    "#": "┃┏┓┗┛█■",
    "@": "▪",
    "%": "▓",
    "/": "▚⇄",
    "x": "✗×",
    "o": "□○◌◦◉◐",
    ">": "▶▸→≥",
    "<": "◀◂←≤",
    "^": "▴↑⇧",
    "v": "▾↓",
    "~": "…±≈",
    "E": "⏎",
    "P": "⚑",
    "V": "√",
    "u": "µ",
    '"': "“”",
    "'": "‘’",  # noqa: RUF001  # as above
    " ": "°",
}
IN_PLACE = {ord(character): like for like, characters in LIKE.items() for character in characters}
DOTS = " ..::****"
"""Replacement of a braille cell, by the number of its dots that are set (0 to 8)."""


def as_ascii(text: str) -> str:
    return text if text.isascii() else "".join(map(_ascii_of, text.translate(IN_PLACE)))


@cache
def _ascii_of(character: str) -> str:
    if character.isascii():
        return character
    if "\u2800" <= character <= "\u28ff":
        return DOTS[ord(character).bit_count() - ord("\u2800").bit_count()]
    letter = unicodedata.normalize("NFKD", character)[0]
    wide = unicodedata.east_asian_width(character) in "WF"
    return (letter if letter.isascii() else "?") + " " * wide
