"""Every ink can be read in every theme, by every eye; where there is no colour, by its glyph."""

from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from textual.app import App
from textual.color import Color
from textual.theme import BUILTIN_THEMES

from gpudash.protocol.commands import Plan
from gpudash.tui import inks
from gpudash.tui.app import Dashboard
from gpudash.tui.widgets.painted import Painted
from tests.tui.alone import Alone
from tests.tui.driving import strips_of
from tests.tui.fake_engine import FakeEngine

ITS_OWN = 0.02
"""Of a contrast: colours have whole numbers."""
THEMES = [name for name, theme in BUILTIN_THEMES.items() if not theme.ansi]
PLACES = ("background", "surface", "panel")
QUIET = {"border": 1.5, "shade-a": 1.3, "shade-b": 1.3}
"""Their contrast. The focus is drawn heavy, in another ink; letters below shades say the same."""

# Machado, Oliveira and Fernandes (2009), severity 1, for linear RGB
EYES = {
    "trichromat": np.eye(3),
    "protanope": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranope": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanope": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
SEEN_APART = 0.04
"""In OKLab; about twice what is just noticeable for patches that touch."""
LINES = {name.removeprefix("line-"): name for name in inks.HUES}
STACK = ("0", "1", "2", "3", "4", "5")
SIDE_BY_SIDE = [*pairwise(STACK), ("0", "2"), ("1", "3"), ("2", "4"), ("2", "5"), ("a", "b")]


@cache
def variables(theme: str) -> dict[str, str]:
    return BUILTIN_THEMES[theme].to_color_system().generate()


def oklab(colour: Color, eye: str) -> np.ndarray:
    linear = [
        ((part + 0.055) / 1.055) ** 2.4 if part > 0.04 else part / 12.92
        for part in colour.normalized
    ]
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    ) @ np.clip(np.array(EYES[eye]) @ linear, 0, 1)
    return np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    ) @ np.cbrt(cones)


def shown(name: str, theme: str, place: str) -> tuple[Color, Color]:
    """Return the ink's colour and what is behind it."""
    behind = Color.parse(variables(theme)[place])
    style = inks.style(name, variables(theme), behind)
    return (style.background if inks.INKS[name].printed_on else style.foreground), behind


@pytest.mark.parametrize("theme", THEMES)
def test_text_has_a_contrast_of_4_5_and_lines_and_fills_of_3(theme):
    for place, (name, ink) in product(PLACES, inks.INKS.items()):
        mark = name in inks.HUES or name == "idle" or ink.printed_on
        wanted = QUIET.get(name, 3.0 if mark else 4.5)
        assert inks.contrast(*shown(name, theme, place)) >= wanted - ITS_OWN, name


@pytest.mark.parametrize("theme", THEMES)
def test_text_on_fills_and_on_the_cursor_has_a_contrast_of_4_5(theme):
    behind = Color.parse(variables(theme)["background"])
    for name, ink in inks.INKS.items():
        if ink.printed_on:
            style = inks.style(name, variables(theme), behind)
            assert inks.contrast(style.foreground, style.background) >= 4.5, name


@pytest.mark.parametrize("theme", THEMES)
def test_neighbouring_inks_are_distinct_for_every_eye(theme):
    for eye, kind, pair in product(EYES, ("line", "fill"), SIDE_BY_SIDE):
        names = [f"fill-{one}" if kind == "fill" else LINES[one] for one in pair]
        one, other = (oklab(shown(name, theme, "background")[0], eye) for name in names)
        assert np.linalg.norm(one - other) >= SEEN_APART, names


def test_a_hue_that_is_light_enough_for_a_dark_theme_is_darkened_for_a_light_one():
    yellow = Color.parse("#e8d030")
    on_black, on_white = (inks.toned(yellow, ground, 5.0) for ground in (inks.BLACK, inks.WHITE))
    assert inks.luminance(on_black) > inks.luminance(on_white)
    for found, ground in ((on_black, inks.BLACK), (on_white, inks.WHITE)):
        assert inks.contrast(found, ground) == pytest.approx(5.0, abs=0.3)


@pytest.mark.parametrize("theme", ["ansi-dark", "ansi-light"])
def test_the_cursor_is_reversed_where_colours_are_the_terminals_own(theme):
    style = inks.style("cursor", variables(theme), inks.BLACK)
    assert style.reverse
    assert style.background is None


class Fills(Painted):
    """A bar of each fill, and one line that has no ink."""

    def rows(self, width, height):
        for hue in inks.LETTERS:
            yield (("▏x 2     ", f"fill-{hue}"),)
        yield (("none  ", ""),)
        yield (("█", "a"), ("█", "rate"))


@pytest.fixture
async def lines_without_colour(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    app = Alone(Fills())
    async with app.run_test(size=(20, 16)):
        yield [line.rstrip() for line in app.lines()]


async def test_fills_have_a_letter_each_without_colour_and_their_labels_stay(lines_without_colour):
    expected = [f"▏x 2 {letter * 4}" for letter in inks.LETTERS.values()]
    assert lines_without_colour[: len(inks.LETTERS)] == expected
    assert len({*inks.LETTERS.values()}) == len(inks.LETTERS)


async def test_a_full_cell_has_the_letter_of_its_hue(lines_without_colour):
    assert lines_without_colour[len(inks.LETTERS) + 1] == f"{inks.LETTERS['a']}█"


@pytest.mark.parametrize(("colours", "shown"), [("truecolor", ""), ("standard", " 0000")])
async def test_fills_are_plain_where_there_are_colours_but_for_sixteen(monkeypatch, colours, shown):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(App, "is_headless", False)
    monkeypatch.setattr("rich.console.Console.color_system", colours)
    app = Alone(Fills())
    async with app.run_test(size=(20, 16)):
        letters = shown.replace("0", inks.LETTERS["0"])
        assert app.lines()[0].rstrip() == f"▏x 2{letters}"


async def test_a_terminals_own_colours_are_left_alone_without_colour(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    app = Dashboard(FakeEngine, Plan(workload="encdec", settings={}))
    async with app.run_test(size=(80, 24)) as pilot:
        app.theme = "ansi-dark"
        await pilot.pause()
        colours = {
            (segment.style.color, segment.style.bgcolor)
            for strip in strips_of(app)
            for segment in strip
            if segment.style and segment.text.strip()
        }
    assert colours
    assert all(front is None or front.is_default for front, _ in colours)
