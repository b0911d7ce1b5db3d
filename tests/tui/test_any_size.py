"""Any size, any values: no exception, no overlap, no number cut in the middle."""

import re

import pytest
from msgspec.structs import replace as changed
from rich.cells import cell_len

from gpudash.present.cells import Parts
from gpudash.snapshot import Result, Series, Snapshot
from gpudash.tui.arrangement import LEAST, PanelChoice
from gpudash.tui.panels import View
from tests.tui import scenes, scripts
from tests.tui.comparisons import CONCLUDED, compared, comparing
from tests.tui.driving import Driver, showing, text_of
from tests.tui.fake_engine import answered, result, training
from tests.tui.frames import frame

SIZES = [
    *((20, 120), (60, 16), (60, 120), (80, 24), (80, 19), (109, 34), (110, 24), (110, 34)),
    *((200, 34), (400, 5), (400, 16), (400, 120)),
]
"""On both sides of each size from which the arrangement is another one."""
NUMBER = re.compile(r"(?<![\w.,+-])[+-]?\d[\d,]*(?:\.\d+)?")


def looks_whole(d: Driver, size: tuple[int, int]) -> bool:
    lines = d.lines()
    return len(lines) == size[1] and all(len(line) == size[0] for line in lines)


@pytest.mark.parametrize("scene", [scenes.running, scenes.decided])
@pytest.mark.parametrize(
    "view", [View(), View(tab="ab", focus="pane", panels=PanelChoice(chosen="pane"))]
)
def test_every_size_is_filled_with_rows_of_its_width(scene, view):
    snapshot = answered(scene())
    for size in SIZES:
        rows = frame(snapshot, view, size)
        assert is_whole(rows, size)
        assert ("too small" in seen(rows)) == (size[0] < LEAST[0] or size[1] < LEAST[1])


def seen(rows: list[Parts]) -> str:
    return "\n".join(map(text_of, rows))


def is_whole(rows: list[Parts], size: tuple[int, int]) -> bool:
    widths = {cell_len(text_of(row)) for row in rows}
    return len(rows) == size[1] and widths == {size[0]}


def numbers_of(text: str) -> set[str]:
    return {number for number in NUMBER.findall(text) if len(number) > 2}


@pytest.mark.parametrize("scene", [scenes.running, scenes.decided, scenes.without_gpu])
@pytest.mark.parametrize("tab", ["history", "ab"])
def test_a_narrow_screen_shows_no_number_that_a_wide_one_does_not(scene, tab):
    """What is cut in the middle would be another number."""
    view = View(tab=tab, focus="pane", panels=PanelChoice(chosen="pane"))
    snapshot = answered(scene())
    known = numbers_of(seen(frame(snapshot, view, (300, 60))))
    for width in range(60, 200, 35):
        rest = numbers_of(seen(frame(snapshot, view, (width, 34)))) - known
        cut = {number for number in rest if is_part_of_one(number, known)}
        assert cut <= {"+10", "-10"}, width  # labels of an axis


def is_part_of_one(number: str, known: set[str]) -> bool:
    """Whether it begins or ends as a longer number does."""
    return any(other != number and other.startswith(number) for other in known)


# ── too much of it, too large, too long ─────────────────────────────────────────────────


HEBREW = "שלום־עולם"


@pytest.mark.parametrize("size", [(200, 50), (120, 40), (80, 24), (60, 16)])
def test_right_to_left_names_do_not_reorder_the_row(size):
    row = result(1, f"{HEBREW}=\u202eabc", 200.0)
    device = changed(training().device, name=f"{HEBREW} \u202e 9000")
    snapshot = changed(training(), results=(row,), device=device, workload=HEBREW)
    first, *rest = map(
        text_of, frame(answered(snapshot), View(panels=PanelChoice(chosen="pane")), size)
    )
    assert "\u202e" not in "".join((first, *rest))
    assert HEBREW in first
    assert HEBREW in "".join(rest)


@pytest.mark.parametrize("scale", [1e-6, 1e3, 1e12])
def test_values_of_any_size_fit_their_place(scale):
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
    for size in [(200, 50), (120, 40), (80, 24), (60, 16)]:
        assert is_whole(
            frame(answered(snapshot), View(panels=PanelChoice(chosen="pane")), size), size
        )


NAMES = ("レバー", HEBREW, "ключ", "émoji🙂", "x" * 60)


def of_levers(count: int) -> Snapshot:
    """A script with so many levers, some of which were proven: with any gain, and any width."""
    offers = tuple(
        changed(
            scripts.OFFERS[0], name=f"{NAMES[n % len(NAMES)]}{n}", choices=("a", "b" * n or "b")
        )
        for n in range(count)
    )
    found = ((-0.99, -0.98, -0.97), (-0.9, 0.1, 99.0), (900.0, 1000.0, 1100.0), (0.0, 0.0, 0.0))
    verdicts = tuple(
        compared(20, lever=one.name, a="a", b=one.choices[1], low=low, change=change, high=high,
                 verdict="said", settings={})
        for one, (low, change, high) in zip(offers, found * 10, strict=False)
    )  # fmt: skip
    settings = {one.name: "a" for one in offers}
    return changed(
        scripts.training(),
        levers=offers,
        settings=settings,
        verdicts=verdicts,
        comparison=verdicts[-1] if verdicts else None,
    )


@pytest.mark.parametrize("count", [0, 40])
@pytest.mark.parametrize("tab", ["history", "ab"])
def test_any_number_of_levers_with_any_gain_and_name_fits(count, tab):
    snapshot = answered(of_levers(count))
    for size in [(60, 16), (120, 40)]:
        for chosen in ("levers", "pane"):
            view = View(tab=tab, focus=chosen, panels=PanelChoice(chosen=chosen))
            rows = frame(snapshot, view, size)
            assert is_whole(rows, size)
            assert "failed" not in seen(rows)


def test_a_gain_beyond_the_axis_is_marked_and_one_too_large_to_spell_is_said_so():
    text = seen(frame(answered(of_levers(4)), View(), (120, 40)))
    assert "> +9999 %" in text
    assert "-98.0 % [-99.0, -97.0]" in text
    assert "▸" in next(line for line in text.splitlines() if "> +9999 %" in line)


@showing(comparing())
async def test_a_verdict_that_arrives_while_the_terminal_is_resized_is_shown_whole(d):
    sizes = [(80, 24), (200, 50), (60, 16), (20, 5), (120, 40)]
    await d.press("v")
    for number, size in enumerate(sizes):
        d.engine.publish(changed(CONCLUDED, total_steps=20_000 + number))
        await d.pilot.resize_terminal(*size)  # not waiting for the one or the other
        d.engine.publish(changed(CONCLUDED, total_steps=30_000 + number))
    await d.settle()
    assert looks_whole(d, sizes[-1])
    d.app.main_screen.open_tab("ab")
    await d.settle()
    assert "pipelined=off is 6.3 % faster [5.9, 6.8]" in d.text()
