"""The named colours of the widgets: a thing has the same hue wherever it is shown.

Each hue has a fixed contrast with the background, so that it is visible in every theme.
Neighbours differ in lightness too, for colour-blind users.
"""

from collections.abc import Mapping
from functools import cache

import msgspec
from textual.color import Color, Lab, lab_to_rgb, rgb_to_lab
from textual.style import Style

TEXT = 4.5
"""The contrast that WCAG 2 requires of text."""
MARK = 3.0
"""The contrast that WCAG 2 requires of meaningful graphics."""
FILL = 0.7
"""A fill's share of its hue: text is printed on it, and rows of fills stay separate."""
BLACK, WHITE = Color(0, 0, 0), Color(255, 255, 255)


class _Ink(msgspec.Struct, frozen=True):
    """A colour: the theme's own if its contrast suffices, or a hue at a fixed contrast."""

    colour: str
    """A variable of the theme, such as `$foreground`, or `#rrggbb`."""
    contrast: float
    share: float = 1.0
    """Share of the colour; the rest is background."""
    bold: bool = False
    printed_on: bool = False
    """Whether it is a background, with black or white text on it."""


HUES = {
    "line-0": _Ink("#80a0a8", 3.3),  # waiting for data
    "line-1": _Ink("#c8904a", 6.2),  # copy
    "line-2": _Ink("#8a62f0", 3.2),  # prepare, encode
    "line-3": _Ink("#3fae5a", 4.2),  # forward
    "line-4": _Ink("#f07ab8", 5.6),  # backward
    "line-5": _Ink("#e8d030", 7.4),  # optimizer
    "line-6": _Ink("#9ac23a", 3.8),  # graph
    "line-7": _Ink("#d05a5a", 4.6),  # communication
    "line-8": _Ink("#50a8f0", 5.0),  # rollout
    "line-9": _Ink("#58b8a8", 5.2),  # forward, frozen
    "line-10": _Ink("#b09a88", 3.4),  # your code
    "rate": _Ink("#3a90f0", 4.0),  # throughput, and the device's readings
    "past": _Ink("#3a90f0", 3.0),  # throughput that is no news
    "host": _Ink("#20c0b0", 6.0),
    "a": _Ink("#3a90f0", 4.0),
    "b": _Ink("#f08a3c", 6.0),
}

EVENTS = {
    "operator": _Ink("#20c0b0", 6.0),
    "python": _Ink("#8a62f0", 5.0),
    "runtime": _Ink("#80a0a8", 5.0),
    "sync": _Ink("$error", 4.0),
    "annotation": _Ink("#9ac23a", 5.5),
    "kernel": _Ink("#3a90f0", 5.5),
    "copy": _Ink("#c8904a", 6.2),
    "set": _Ink("#c8904a", 6.2),
    "collective": _Ink("#f07ab8", 5.6),
    "overlap": _Ink("#e8d030", 7.4),
}
"""Hues of a timeline's events. Their inks: `lit` and `dusk` alternate, `mark` is for partly filled
cells."""

INKS = {
    "text": _Ink("$foreground", TEXT),
    "strong": _Ink("$foreground", TEXT, bold=True),
    "dim": _Ink("$foreground", TEXT, share=0.75),
    "head": _Ink("$foreground", TEXT, share=0.75, bold=True),
    "faint": _Ink("$foreground", TEXT, share=0.55),
    "idle": _Ink("$foreground", MARK, share=0.4),
    "good": _Ink("$text-success", TEXT),
    "better": _Ink("$text-success", TEXT, bold=True),
    "busy": _Ink("$text-warning", TEXT),
    "bad": _Ink("$text-error", TEXT, bold=True),
    "key": _Ink("$foreground", TEXT, bold=True),  # no hue: a theme's accents mean other things
    "border": _Ink("$foreground", 1.5, share=0.3),  # faint: only the focused border has a meaning
    "focus": _Ink("$primary", TEXT, bold=True),
    "cursor": _Ink("$block-cursor-background", MARK, bold=True, printed_on=True),
    "cap": _Ink("$primary", MARK, bold=True, printed_on=True),  # of the key to press now
    **HUES,
    **{
        f"fill-{name.removeprefix('line-')}": _Ink(
            hue.colour, MARK + FILL * (hue.contrast - MARK), share=FILL, printed_on=True
        )
        for name, hue in HUES.items()
    },
    **{
        f"band-{name}": _Ink(colour, TEXT, bold=True, printed_on=True)
        for name, colour in (
            *((name, hue.colour) for name, hue in HUES.items()),
            *(("busy", "$text-warning"), ("bad", "$text-error")),
        )
    },
    **{f"mark-{name}": _Ink(ink.colour, TEXT) for name, ink in EVENTS.items()},
    **{
        f"lit-{name}": _Ink(ink.colour, ink.contrast, printed_on=True)
        for name, ink in EVENTS.items()
    },
    **{
        f"dusk-{name}": _Ink(ink.colour, MARK, share=FILL, printed_on=True)
        for name, ink in EVENTS.items()
    },
}
"""These are not component classes: Textual would match the stylesheet for each of them in each
widget several times before the first frame."""

LETTERS = {
    "0": "d",
    "1": "c",
    "2": "e",
    "3": "f",
    "4": "b",
    "5": "o",
    "6": "g",
    "7": "m",
    "8": "r",
    "9": "z",
    "10": "y",
    "host": "h",
    "a": "A",
    "b": "B",
}
"""Letters that stand for hues in terminals with no colours or only sixteen: those of data, copy,
encode, forward, backward, optimizer, graph, communication, rollout, frozen, your code, host."""

REVERSED = ("band-", "cap")
"""Inks of text that is reversed in such terminals."""
TURNS = {"lit": "▓", "dusk": "▒"}
"""Patterns for a timeline's events, of which neighbours alternate."""


def lettered(text: str, name: str) -> str:
    """Return the text with letters for the hue: in full cells, and in what a fill has left over."""
    kind, _, hue = name.rpartition("-")
    if kind in TURNS:
        return text.replace(" ", "█" if hue == "sync" else TURNS[kind])
    letter = LETTERS.get(hue, "█")
    label = text.rstrip()
    if kind == "fill" and hue in LETTERS:
        left = len(text) - len(label)
        return f"{label}{' ' * (len(label) > 1 and left > 1)}".ljust(len(text), letter)
    # a reading's bar stands alone
    return text.replace("█", letter) if kind == "line" or name in ("a", "b") else text


def filled(fill: str) -> str:
    """Return the ink of a fill's hue: among sixteen colours its shade would be another hue."""
    hue = fill.removeprefix("fill-")
    return hue if hue in HUES else f"line-{hue}"


def style(name: str, colours: Mapping[str, str], background: Color) -> Style:
    """`colours` are the theme's variables; the terminal's own palette stays, as it is unknown."""
    ink = INKS[name]
    themed = ink.colour.startswith("$")
    colour = Color.parse(colours[ink.colour[1:]] if themed else ink.colour)
    if colour.ansi is not None:
        return Style(
            foreground=None if ink.printed_on else colour,
            bold=ink.bold,
            dim=ink.share < 1,
            reverse=ink.printed_on,
        )
    colour = background.blend(colour, ink.share)
    if not themed or contrast(colour, background) < ink.contrast:
        colour = toned(colour, background, ink.contrast)
    if ink.printed_on:
        return Style(colour, _best_on(colour), bold=ink.bold)
    return Style(foreground=colour, bold=ink.bold)


@cache
def toned(hue: Color, background: Color, ratio: float) -> Color:
    near, a, b = rgb_to_lab(background)[0], *rgb_to_lab(hue)[1:]
    far = 100.0 if _best_on(background) is WHITE else 0.0
    for _ in range(8):
        middle = (near + far) / 2
        if contrast(lab_to_rgb(Lab(middle, a, b)).clamped, background) < ratio:
            near = middle
        else:
            far = middle
    return lab_to_rgb(Lab(far, a, b)).clamped


def _best_on(background: Color) -> Color:
    """Return black or white, whichever contrasts more: at least 4.58."""
    return max(WHITE, BLACK, key=lambda text: contrast(text, background))


def contrast(one: Color, other: Color) -> float:
    """Return the contrast as WCAG 2 defines it, from 1 to 21."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@cache
def luminance(colour: Color) -> float:
    """Return the relative luminance, from 0 to 1."""
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in colour.normalized
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
