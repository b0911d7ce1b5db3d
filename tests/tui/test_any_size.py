"""Any size, any values: no exception, no overlap, no number cut in the middle."""

import re
from itertools import combinations

import msgspec
import pytest

from gpudash.offers import levers_of
from gpudash.snapshot import Result, Series
from gpudash.tui.arrangement import LEAST
from tests.tui import scenes
from tests.tui.driving import Driver, dashboard
from tests.tui.fake_engine import result, training
from workloads.levers import Choice

changed = msgspec.structs.replace

WIDTHS = (20, 60, 80, 109, 110, 200, 400)
HEIGHTS = (5, 16, 19, 24, 34, 120)
NUMBER = re.compile(r"(?<![\w.,+-])[+-]?\d[\d,]*(?:\.\d+)?")


def ink_share(d: Driver) -> float:
    """The share of cells in which there is something to see.

    A character that is not blank, or a blank on a fill or a shade: parts of lanes are printed on
    those. Blanks of the bars at the top and at the bottom are not counted: they say nothing.
    """
    empty = {d.app._main.rich_style.bgcolor}
    empty |= {d.app._main.query_one(f"#{bar}").rich_style.bgcolor for bar in ("header", "footer")}
    cells = [
        character != " " or segment.style.bgcolor not in empty
        for strip in d.app._main._compositor.render_strips()
        for segment in strip
        for character in segment.text
    ]
    return sum(cells) / len(cells)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_a_running_dashboard_has_ink_on_45_percent_of_its_cells(size):
    async with dashboard(size, snapshot=scenes.running()) as d:
        assert ink_share(d) >= 0.45


def overlapping(d: Driver) -> list[tuple[str | None, str | None]]:
    shown = [widget for widget in d.app._main.children if widget.region.area]
    return [
        (one.id, other.id)
        for one, other in combinations(shown, 2)
        if one.region.overlaps(other.region)
    ]


def looks_whole(d: Driver, size: tuple[int, int]) -> bool:
    lines = d.lines()
    return len(lines) == size[1] and all(len(line) == size[0] for line in lines)


@pytest.mark.parametrize("scene", [scenes.running, scenes.decided])
@pytest.mark.timeout(120)
async def test_every_size_and_every_resize_works(scene):
    async with dashboard((120, 40), snapshot=scene()) as d:
        sizes = [(width, height) for height in HEIGHTS for width in WIDTHS]
        order = [size for pair in zip(sizes, reversed(sizes), strict=True) for size in pair]
        for size in order[: len(sizes)]:  # from small to large and back, each size once
            await d.resize(*size)
            assert overlapping(d) == []
            assert looks_whole(d, size)
            assert ("too small" in d.text()) <= (size[0] < LEAST[0] or size[1] < LEAST[1])


def numbers_of(text: str) -> set[str]:
    return {number for number in NUMBER.findall(text) if len(number) > 2}


@pytest.mark.parametrize("scene", [scenes.running, scenes.decided, scenes.without_gpu])
@pytest.mark.parametrize("tab", ["results", "ab"])
async def test_a_narrow_screen_shows_no_number_that_a_wide_one_does_not(scene, tab):
    """What is cut in the middle would be another number."""
    async with dashboard((400, 120), snapshot=scene()) as d:
        for panel in "12345":
            await d.press(panel)
        d.app._main.open_tab(tab)
        await d.settle()
        known = numbers_of(d.text())
        for width in range(60, 200, 20):
            await d.resize(width, 34)
            rest = numbers_of(d.text()) - known
            assert not {number for number in rest if is_part_of_one(number, known)}, width


def is_part_of_one(number: str, known: set[str]) -> bool:
    """Whether it begins or ends as a longer number does."""
    return any(other != number and other.startswith(number) for other in known)


# ── too much of it, too large, too long ─────────────────────────────────────────────────


async def test_500_result_rows_keep_the_first_and_the_newest_and_scroll():
    rows = tuple(result(n, f"batch_size={n}", 200.0 + n) for n in range(1, 501))
    async with dashboard(snapshot=changed(training(), results=rows)) as d:
        assert "batch_size=1 " in d.text()
        assert "batch_size=500 " in d.text()
        await d.press("5", *["pageup"] * 20)
        assert "batch_size=300 " not in d.text()
        assert "results 500" in d.text()
        for size in [(60, 16), (80, 24), (400, 120)]:
            await d.resize(*size)
            assert looks_whole(d, size)


async def test_a_lever_with_60_values_is_named_and_its_values_can_be_chosen(monkeypatch):
    levers = list(levers_of("encdec", {}))
    at = next(index for index, one in enumerate(levers) if one.name == "precision")
    many = tuple(f"value_{n}" for n in range(60))
    levers[at] = Choice(**vars(levers[at]) | {"choices": many, "default": many[0]})
    monkeypatch.setattr("gpudash.tui.control.levers_of", lambda *_: tuple(levers))
    for size in [(120, 40), (80, 24), (60, 16)]:
        async with dashboard(size, snapshot=training()) as d:
            await d.choose("precision")
            assert looks_whole(d, size)
            await d.press("enter")
            assert "value_0" in d.text()
            assert looks_whole(d, size)


HEBREW = "שלום־עולם"


async def test_right_to_left_names_do_not_reorder_the_row():
    row = result(1, f"{HEBREW}=\u202eabc", 200.0)
    device = changed(training().device, name=f"{HEBREW} \u202e 9000")
    snapshot = changed(training(), results=(row,), device=device, workload=HEBREW)
    for size in [(200, 50), (120, 40), (80, 24), (60, 16)]:
        async with dashboard(size, snapshot=snapshot) as d:
            await d.press("5")
            assert "\u202e" not in d.text()
            assert HEBREW in d.lines()[0]
            assert HEBREW in d.text().replace(d.lines()[0], "")


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3, 1e6, 1e9, 1e12])
async def test_values_of_any_size_fit_their_place(scale):
    base = scenes.running()
    values = {
        name: tuple(None if value is None else scale * value for value in of_one)
        for name, of_one in base.series.values.items()
    }
    rows: tuple[Result, ...] = tuple(
        changed(
            row,
            **{
                name: scale * getattr(row, name)
                for name in ("steps_per_s", "samples_per_s", "step_ms_p50", "step_ms_p95")
            },
        )
        for row in base.results
    )
    snapshot = changed(
        base,
        series=Series(at_s=base.series.at_s, values=values),
        results=rows,
        steps_per_s=scale * 146.2,
        samples_per_s=scale * 4678,
        step_ms_p50=scale * 6.84,
        step_ms_p95=scale * 6.94,
        loss=scale,
        total_steps=int(scale),
    )
    async with dashboard(snapshot=snapshot) as d:
        await d.press("5")
        for size in [(200, 50), (120, 40), (80, 24), (60, 16)]:
            await d.resize(*size)
            assert looks_whole(d, size)
            assert overlapping(d) == []


@pytest.mark.parametrize("theme", ["textual-light", "solarized-light", "ansi-dark", "ansi-light"])
async def test_another_theme_shows_the_same_text(theme):
    async with dashboard(snapshot=scenes.decided()) as d:
        before = d.text()
        d.app.theme = theme
        await d.settle()
        assert d.text() == before
        await d.resize(80, 24)
        assert looks_whole(d, (80, 24))
