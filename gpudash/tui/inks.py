"""What widgets paint with, by name: a thing has one hue wherever it is shown.

A hue is put at its own contrast with the background, so that it can be seen in every theme, and
neighbours differ in lightness too: for eyes that tell no red from green, and without colour.
"""

from collections.abc import Mapping
from functools import cache

import msgspec
from textual.color import Color, Lab, lab_to_rgb, rgb_to_lab
from textual.style import Style

TEXT = 4.5
"""The contrast that WCAG 2 asks for text, and below that for a mark that means something."""
MARK = 3.0
SHADE = 1.3
"""Of what a curve stands on: letters below it say the same."""
FILL = 0.7
"""A fill's share of its hue: text is printed on it, and rows of fills stay apart."""
BLACK, WHITE = Color(0, 0, 0), Color(255, 255, 255)


class Ink(msgspec.Struct, frozen=True):
    """A colour: the theme's own, kept where its contrast suffices, or a hue at its contrast."""

    colour: str
    """One of the theme's variables, as `$foreground`, or `#rrggbb`."""
    contrast: float
    share: float = 1.0
    """How much of the colour there is, the rest is background."""
    bold: bool = False
    printed_on: bool = False
    """Whether it is a background, and text on it is black or white."""


HUES = {
    "line-0": Ink("#80a0a8", 3.3),  # waiting for data
    "line-1": Ink("#c8904a", 6.2),  # copy
    "line-2": Ink("#8a62f0", 3.2),  # prepare, encode
    "line-3": Ink("#3fae5a", 4.2),  # forward
    "line-4": Ink("#f07ab8", 5.6),  # backward
    "line-5": Ink("#e8d030", 7.4),  # optimizer
    "line-6": Ink("#9ac23a", 3.8),  # graph
    "line-7": Ink("#d05a5a", 4.6),  # communication
    "rate": Ink("#3a90f0", 4.0),  # throughput, and what the device does
    "host": Ink("#20c0b0", 6.0),
    "a": Ink("#3a90f0", 4.0),
    "b": Ink("#f08a3c", 6.0),
}

EVENTS = {
    "operator": Ink("#20c0b0", 6.0),
    "python": Ink("#8a62f0", 5.0),
    "runtime": Ink("#80a0a8", 5.0),
    "sync": Ink("$error", 4.0),
    "annotation": Ink("#9ac23a", 5.5),
    "kernel": Ink("#3a90f0", 5.5),
    "copy": Ink("#c8904a", 6.2),
    "set": Ink("#c8904a", 6.2),
    "collective": Ink("#f07ab8", 5.6),
    "overlap": Ink("#e8d030", 7.4),
}
"""Of a timeline; `lit` and `dusk` take turns, `mark` is for cells that are filled in part."""

INKS = {
    "text": Ink("$foreground", TEXT),
    "strong": Ink("$foreground", TEXT, bold=True),
    "dim": Ink("$foreground", TEXT, share=0.75),
    "head": Ink("$foreground", TEXT, share=0.75, bold=True),
    "faint": Ink("$foreground", TEXT, share=0.55),
    "idle": Ink("$foreground", MARK, share=0.4),
    "good": Ink("$text-success", TEXT),
    "better": Ink("$text-success", TEXT, bold=True),
    "busy": Ink("$text-warning", TEXT),
    "bad": Ink("$text-error", TEXT, bold=True),
    "key": Ink("$foreground", TEXT, bold=True),  # no hue: accents of themes mean other things
    "border": Ink("$foreground", 1.5, share=0.3),  # quiet: it carries nothing, the focus does
    "focus": Ink("$primary", TEXT, bold=True),
    "cursor": Ink("$block-cursor-background", MARK, bold=True, printed_on=True),
    **HUES,
    **{  # behind a curve
        f"shade-{side}": Ink(HUES[side].colour, SHADE, share=0.25, printed_on=True)
        for side in ("a", "b")
    },
    **{
        f"fill-{name.removeprefix('line-')}": Ink(
            hue.colour, MARK + FILL * (hue.contrast - MARK), share=FILL, printed_on=True
        )
        for name, hue in HUES.items()
    },
    **{f"mark-{name}": Ink(ink.colour, TEXT) for name, ink in EVENTS.items()},
    **{
        f"lit-{name}": Ink(ink.colour, ink.contrast, printed_on=True)
        for name, ink in EVENTS.items()
    },
    **{
        f"dusk-{name}": Ink(ink.colour, MARK, share=FILL, printed_on=True)
        for name, ink in EVENTS.items()
    },
}
"""Not component classes: Textual would match the stylesheet for each of them in each widget
several times before the first frame."""

TEXTURES = {
    "0": "□",
    "1": "≡",
    "2": "░",
    "3": "▒",
    "4": "▓",
    "5": "█",
    "6": "▪",
    "7": "▤",
    "host": "▚",
    "a": "▒",
    "b": "░",
}
"""What tells fills apart where there is no colour, or where sixteen must do."""

TURNS = {"lit": "▓", "dusk": "▒"}
"""Of a timeline's events, of which neighbours take turns."""


def texture(name: str) -> dict[int, str]:
    """Return what to put in the place of the characters that an ink of this name fills."""
    kind, _, hue = name.rpartition("-")
    if kind in TURNS:
        return {ord(" "): "█" if hue == "sync" else TURNS[kind]}
    full = " " if kind == "fill" else "█"
    return {ord(full): TEXTURES[hue]} if hue in TEXTURES else {}


def style(name: str, colours: Mapping[str, str], background: Color) -> Style:
    """Return the style of the ink on the background, in the theme of these variables.

    What a terminal's own palette looks like is not known: its colours are taken as they are.
    """
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
        return Style(colour, best_on(colour), bold=ink.bold)
    return Style(foreground=colour, bold=ink.bold)


@cache
def toned(hue: Color, background: Color, ratio: float) -> Color:
    """Return the hue as light or dark as it contrasts that much with the background."""
    near, a, b = rgb_to_lab(background)[0], *rgb_to_lab(hue)[1:]
    far = 100.0 if best_on(background) is WHITE else 0.0
    for _ in range(8):
        middle = (near + far) / 2
        if contrast(lab_to_rgb(Lab(middle, a, b)).clamped, background) < ratio:
            near = middle
        else:
            far = middle
    return lab_to_rgb(Lab(far, a, b)).clamped


def best_on(background: Color) -> Color:
    """Return black or white; one of them has a contrast of 4.58 at least."""
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
