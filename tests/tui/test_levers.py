"""The lever panel alone: what it shows at each size, and what keys and mouse do to it."""

from contextlib import asynccontextmanager

import msgspec
import pytest
from rich.cells import cell_len
from textual import events
from textual.app import App

from gpudash.protocol.commands import Plan
from gpudash.tui.control import Control
from gpudash.tui.lever_values import LeverRow
from gpudash.tui.widgets.levers import EFFECTS, LeverPanel
from tests.tui.fake_engine import FakeEngine
from tests.tui.test_run import running
from tests.tui.test_verdicts import after
from workloads import CATALOGUE
from workloads.levers import Choice, Count

changed = msgspec.structs.replace
MOVED = {"pipelined": "on", "batch_size": "32", "data": "resident", "backward_thread": "autograd"}
SIZES = [(20, 5), (24, 12), (34, 10), (34, 28), (36, 30), (80, 8), (110, 34), (400, 120)]


class Host(App):
    """An app with nothing but the panel, which notes the actions asked of it."""

    CSS = "LeverPanel { width: 1fr; height: 1fr; }"

    def __init__(self):
        super().__init__()
        self.did = []

    def compose(self):
        yield LeverPanel(id="levers")

    def action_edit(self):
        self.did.append("edit")

    def action_undo(self):
        self.did.append("undo")


@asynccontextmanager
async def panel(rows=None, size=(34, 28), why_not=None, undo=""):
    app = Host()
    async with app.run_test(size=size) as pilot:
        shown = app.query_one(LeverPanel)
        shown.show(after(**MOVED).levers.rows() if rows is None else rows, why_not, undo)
        await pilot.pause()
        yield shown, pilot


def lines(shown):
    return [shown.render_line(y).text for y in range(shown.size.height)]


def words(shown):
    """All that is shown, without frame and line ends."""
    return " ".join(" ".join(line.strip("│┃") for line in lines(shown)).split())


def line_of(shown, name):
    (line,) = [line for line in lines(shown) if line[1:].lstrip(" ▸").startswith(f"{name} ")]
    return line.strip("│┃")


def own(name="own", value="a", **values):
    choices = values.pop("choices", ("a", "b"))
    lever = Choice(
        name=name, default=choices[0], choices=choices, effect="next step", summary="", source=""
    )
    return LeverRow(lever=lever, value=value, pending=values.pop("pending", None), **values)


async def test_the_cursor_begins_on_the_first_lever_that_can_act_and_stays_where_it_was_moved():
    idle, other = own("idle", acts=False), own("other")
    async with panel(rows=(idle, other)) as (shown, _):
        assert shown.chosen.name == "other"
        shown.move(-1)
        assert "needs a GPU: does nothing here" in words(shown)
        shown.show((idle, msgspec.structs.replace(other, value="b")))
        assert shown.chosen.name == "idle"


# ── what is shown ───────────────────────────────────────────────────────────────────────


async def test_all_fourteen_levers_are_in_sight_with_values_and_moved_defaults():
    async with panel() as (shown, _):
        expected = {
            "pipelined": "off [on]",
            "batch_size": "◦      32  default 8",
            "pin_memory": "◦      [off] on",
            "data": "◦            resident",
            "precision": "tf32",
            "backward_thread": "autograd",
            "model_scale": "!     full",
            "seed": "!            0",
        }
        for name, value in expected.items():
            assert line_of(shown, name).split(name)[1].strip() == value
        assert all(line_of(shown, lever.name) for lever in CATALOGUE["encdec"].levers)
        assert "more" not in "".join(lines(shown))


async def test_the_lever_under_the_cursor_is_explained_below_a_rule():
    async with panel() as (shown, pilot):
        text = words(shown)
        assert "───── Encode batch n+1 on one CUDA stream while n trains" in text
        assert "─ from the next step ─" in text
        assert "off, on; default off" in text
        assert (
            "A/B: on +6.0 % [+5.9, +6.1] against off, 40 pairs, batch_size=8, data=loader" in text
        )
        shown.move(1)
        await pilot.pause()
        text = words(shown)
        assert "Samples in one step" in text
        assert "with a new loader" in text
        assert "A/B:" not in text


async def test_the_frame_holds_the_undo_button_and_the_legend():
    async with panel(undo="pipelined=off") as (shown, _):
        assert "⁴levers" in lines(shown)[0]
        assert "u back to off" in lines(shown)[0]
        assert "◦ new loader" in lines(shown)[-1]
        assert "! new weights" in lines(shown)[-1]
    async with panel(undo="pipelined=off", size=(80, 8)) as (shown, _):
        assert "u back to pipelined=off" in lines(shown)[0]
    async with panel(undo="3 levers") as (shown, _):
        assert "u undo 3 levers" in lines(shown)[0]
    async with panel(rows=(own(),)) as (shown, _):
        assert "undo" not in lines(shown)[0]
        assert "new" not in lines(shown)[-1]


async def test_the_panel_says_why_nothing_can_be_changed():
    async with panel(why_not="a recording is shown", size=(80, 8)) as (shown, _):
        assert "a recording is shown" in lines(shown)[0]
    async with panel(why_not="the levers of this run cannot be changed") as (shown, _):
        assert "read only" in lines(shown)[0]
        text = words(shown)
        assert "the levers of this run cannot be changed" in text


async def test_a_requested_value_is_shown_until_it_is_active():
    pending = changed(own(value="8"), pending="16")
    async with panel(rows=(pending,)) as (shown, _):
        assert "8 → 16 …" in line_of(shown, "own")


async def test_without_room_for_all_levers_the_number_of_others_is_shown():
    async with panel(size=(80, 8)) as (shown, pilot):
        assert "8 more↓" in lines(shown)[6]
        shown.move(9)
        await pilot.pause()
        assert "4 more↑" in lines(shown)[1]
        assert "4 more↓" in lines(shown)[6]
        shown.move(4)
        await pilot.pause()
        assert "8 more↑" in lines(shown)[1]
        assert "↓" not in "".join(lines(shown))


@pytest.mark.parametrize(
    ("lever", "rows", "said"),
    [
        ("batch_size", 4, "better, as long as memory and convergence allow."),
        ("batch_size", 3, "Samples in one step …"),
        ("pipelined", 4, "while n trains on another …"),
    ],
)
async def test_without_room_an_explanation_ends_with_a_whole_clause(lever, rows, said):
    levers = running().levers.rows()
    async with panel(levers, size=(34, len(levers) + 3 + rows)) as (shown, pilot):
        while shown.chosen.name != lever:
            shown.move(1)
        await pilot.pause()
        assert EFFECTS[shown.chosen.effect] in lines(shown)[len(levers) + 1]
        below = lines(shown)[len(levers) + 2 : -1]
        text = " ".join(" ".join(line[1:-1] for line in below).split())
        assert text.endswith(said)
        assert len(below) == rows


async def test_the_list_has_its_room_before_the_explanation():
    async with panel(size=(34, 20)) as (shown, _):
        text = "".join(lines(shown))
        assert "seed" in text
        assert "Encode batch n+1 on one CUDA…" in text
        assert "from the next step" in text
    async with panel(size=(34, 16)) as (shown, _):
        assert "seed" in "".join(lines(shown))
        assert "Encode" not in "".join(lines(shown))


ODD = (
    own("שכבה של קידוד", "ערך ארוך מאוד " * 9, default="א", result="ב +5.0 %", context="נגד א"),
    own("a-name-longer-than-any-panel-is-wide-" * 4, "b" * 200),
    own("many", "choice-59", choices=tuple(f"choice-{n}" for n in range(60)), default="choice-0"),
    own("電源", "電" * 60, pending="源" * 60),
    own("\x1b[31mred", "\x07"),
    LeverRow(
        lever=Count(
            name="huge",
            default=1,
            minimum=0,
            maximum=10**18,
            effect="new loader",
            summary="x" * 500,
            source="",
        ),
        value="999999999999999999",
        pending="123456789012345678",
        default="1",
    ),
)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", [(), ODD, ODD * 20], ids=["none", "odd", "many"])
async def test_any_rows_fit_at_any_size(rows, size):
    async with panel(rows=rows, size=size, undo="שכבה " + "x" * 90 + "→y") as (shown, pilot):
        for _ in range(len(rows[:7]) + 1):
            drawn = lines(shown)
            assert all(cell_len(line) == size[0] for line in drawn)
            assert "\x1b" not in "".join(drawn)
            assert "failed" not in "".join(drawn)
            shown.move(1)
            await pilot.pause()
        assert ("none known" in "".join(drawn)) == (not rows)


@pytest.mark.parametrize("width", range(10, 60))
async def test_a_number_is_shown_whole_or_not_at_all(width):
    async with panel(rows=ODD[-1:], size=(width, 6)) as (shown, _):
        numbers = "".join(c if c.isdigit() else " " for c in lines(shown)[1]).split()
        assert set(numbers) <= {"999999999999999999", "123456789012345678"}


# ── what keys and mouse do ──────────────────────────────────────────────────────────────


async def test_the_cursor_goes_round_and_the_wheel_does_not():
    async with panel() as (shown, pilot):
        shown.move(-1)
        assert shown.chosen.name == "seed"
        shown.scroll_rows(1)
        assert shown.chosen.name == "seed"
        shown.move(1)
        shown.scroll_rows(-1)
        assert shown.chosen.name == "pipelined"
        point = {"x": 5, "y": 5, "delta_x": 0, "delta_y": 0, "button": 0}
        keys = {"shift": False, "meta": False, "ctrl": False}
        shown.post_message(events.MouseScrollDown(shown, **point, **keys))
        await pilot.pause()
        assert shown.chosen.name == "batch_size"


async def test_find_goes_to_the_next_lever_with_the_text_in_its_name():
    async with panel() as (shown, _):
        for _ in range(2):  # from the only one round to itself
            assert shown.find("FETCH")
            assert shown.chosen.name == "prefetch_factor"
        assert shown.find("e")
        assert shown.chosen.name == "precision"
        assert not shown.find("nothing like it")
        assert shown.chosen.name == "precision"


async def test_without_levers_nothing_is_chosen_found_or_moved():
    async with panel(rows=()) as (shown, _):
        shown.move(1)
        shown.scroll_rows(1)
        assert not shown.find("a")
        assert shown.chosen is None


async def test_fewer_levers_leave_the_cursor_on_one_of_them():
    async with panel() as (shown, _):
        shown.move(-1)
        shown.show((own("one"), own("two")))
        assert shown.chosen.name == "two"


async def test_the_cursor_stays_on_its_lever_where_others_come_or_go_before_it():
    one, two, three = own("one"), own("two"), own("three")
    async with panel(rows=(one, two, three)) as (shown, _):
        shown.move(1)
        for rows in [(own("new"), one, two, three), (two, three), (one, three, two)]:
            shown.show(rows)
            assert shown.chosen.name == "two"


@pytest.mark.parametrize("framed", [True, False])
async def test_a_click_chooses_and_a_second_one_acts_as_enter(framed):
    async with panel(size=(80, 8)) as (shown, pilot):
        shown.framed = framed
        shown.redraw()
        shown.move(9)  # the list has scrolled
        await pilot.pause()
        y = next(y for y, line in enumerate(lines(shown)) if "precision" in line)
        await pilot.click(offset=(5, y))
        assert (shown.chosen.name, pilot.app.did) == ("precision", [])
        await pilot.click(offset=(5, y))
        await pilot.pause()
        assert (shown.chosen.name, pilot.app.did) == ("precision", ["edit"])
        await pilot.click(offset=(60, y))  # the explanation
        assert pilot.app.did == ["edit"]


async def test_a_click_on_undo_undoes():
    async with panel(undo="pipelined=off") as (shown, pilot):
        await pilot.click(offset=(lines(shown)[0].index("back to"), 0))
        await pilot.pause()
        assert pilot.app.did == ["undo"]


async def test_a_click_below_the_list_does_nothing():
    async with panel() as (shown, pilot):
        await pilot.click(offset=(5, 20))
        await pilot.pause()
        assert (shown.chosen.name, pilot.app.did) == ("pipelined", [])


def test_before_anything_ran_levers_are_as_this_device_starts_with_them():
    for device, precision in (("cpu", "fp32"), ("cuda", "tf32")):
        plan = Plan(workload="masked_loss", settings={}, device=device)
        assert Control(FakeEngine, plan).levers.active["precision"] == precision


async def test_which_batch_would_fit_stands_with_the_lever_whose_peaks_tell():
    fits = "batch 96 would fit, 112 would not (from the peaks at 32 and 64)"
    rows = (changed(own("batch_size", "64", choices=("32", "64")), forecast=fits), own("other"))
    async with panel(rows) as (shown, pilot):
        assert fits in words(shown)
        shown.move(1)
        await pilot.pause()
        assert "would fit" not in words(shown)
