"""The lever panel alone: what it shows at each size, and what keys and mouse do to it."""

from contextlib import asynccontextmanager

import msgspec
import pytest
from rich.cells import cell_len
from textual import events
from textual.app import App

from gpudash.protocol.answer import Answer, Gain, Try
from gpudash.protocol.commands import Plan
from gpudash.snapshot import Snapshot
from gpudash.tui.control import Control
from gpudash.tui.lever_values import LeverRow
from gpudash.tui.widgets.levers import LeverPanel
from tests.tui.driving import dashboard
from tests.tui.fake_engine import FakeEngine, gpu_sample, training
from tests.tui.test_ledger import verdict
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


@asynccontextmanager
async def panel(rows=None, size=(120, 17), why_not=None, snapshot=None):
    app = Host()
    async with app.run_test(size=size) as pilot:
        shown, run = app.query_one(LeverPanel), after(**MOVED)
        snapshot = snapshot or (run.snapshot if rows is None else Snapshot())
        shown.show(run.levers.rows() if rows is None else rows, snapshot, why_not)
        await pilot.pause()
        yield shown, pilot


def lines(shown):
    return [shown.render_line(y).text for y in range(shown.size.height)]


def words(shown):
    """All that is shown, without the ends of lines."""
    return " ".join(" ".join(lines(shown)).split())


def line_of(shown, name):
    (line,) = [line for line in lines(shown) if line[1:].lstrip(" ▸◐").startswith(f"{name} ")]
    return line


def own(name="own", value="a", **values):
    choices = values.pop("choices", ("a", "b"))
    lever = Choice(
        name=name, default=choices[0], choices=choices, effect="next step", source="",
        summary=values.pop("summary", ""),
    )  # fmt: skip
    return LeverRow(lever=lever, value=value, pending=values.pop("pending", None), **values)


def proposing(*tries):
    return Snapshot(answer=Answer(limit="gpu", title="GPU-bound", tries=tries))


PROMISED = Try("other", "b", "", "a", Gain(10.0, 20.0), 10)


async def test_the_cursor_begins_on_the_proposal_and_stays_where_it_was_moved():
    rows = own("one"), own("other")
    async with panel(rows, snapshot=proposing(PROMISED)) as (shown, _):
        assert shown.chosen.name == "other"
        shown.move(1)
        assert shown.chosen.name == "one"
        shown.show(rows, proposing(Try("one", "b", "", "a", Gain(50.0, 60.0)), PROMISED))
        assert shown.chosen.name == "one"


# ── what is shown ───────────────────────────────────────────────────────────────────────


async def test_all_fourteen_levers_are_in_sight_with_the_active_value_in_brackets():
    async with panel() as (shown, _):
        expected = {
            "pipelined": "off → [on]",
            "batch_size": "[32]",
            "pin_memory": "[off] → on",
            "data": "[resident]",
            "backward_thread": "[autograd]",
            "model_scale": "[full]",
        }
        for name, value in expected.items():
            assert line_of(shown, name).split(name)[1].strip().startswith(value)
        assert all(line_of(shown, lever.name) for lever in CATALOGUE["encdec"].levers)
        assert "more" not in "".join(lines(shown))


async def test_the_rule_has_the_heads_and_one_axis_for_estimates_and_proofs():
    async with panel((own("other"),), snapshot=proposing(PROMISED)) as (shown, _):
        rule, row = lines(shown)[:2]
        assert rule.startswith(" ━ ¹lever ")
        assert "from → to" in rule
        assert "samples/s" in rule
        zero, ten, twenty = (row_at(rule, text) for text in ("0", "+10", "+20 %"))
        assert zero < ten < twenty
        assert row[row.index("┊") :].startswith("┊░")
        assert row.rindex("░") < row.index("╌")
        assert ten - 1 <= row.rindex("░") <= ten + 2
        assert row.rindex("╌") <= twenty + 4
        assert "+10 to +20 %" in row
        assert row.rstrip().endswith("estimate")


def row_at(rule, text):
    return rule.index(f"━{text}" if f"━{text}" in rule else f"─{text}") + 1


async def test_a_proof_has_a_dot_its_interval_and_its_a_b():
    async with panel() as (shown, _):
        row = line_of(shown, "pipelined")
        assert "●" in row
        assert "+6.0 % [+5.9, +6.1]" in row
        assert "A/B 1" in row


@pytest.mark.parametrize("to", ["b", "tensor_decode_in_workers"])
async def test_80_columns_have_the_axis_too(to):
    one = own("fused_optimizer", choices=("a", to))
    proposed = Try("fused_optimizer", to, "", "a", Gain(10.0, 20.0), 10)
    async with panel((one,), size=(80, 8), snapshot=proposing(proposed)) as (shown, _):
        assert "0" in lines(shown)[0]
        assert "+20 %" in lines(shown)[0]
        assert "┊" in line_of(shown, "fused_optimizer")


async def test_an_interval_that_shows_no_difference_sets_no_scale():
    undecided = verdict("own", -0.8, 0.44, 10.3, a="a", b="b")
    snapshot = changed(proposing(PROMISED), verdicts=(undecided,), settings={"own": "a"})
    async with panel((own(), own("other")), snapshot=snapshot) as (shown, _):
        assert "+20 %" in lines(shown)[0]
        assert "░╌" in line_of(shown, "other")
        assert "▸" in line_of(shown, "own")[4:]


async def test_without_room_for_both_no_difference_is_said_and_not_the_figure():
    undecided = verdict("own", -0.3, 0.547, 2.427, a="a", b="b", settings={"other": "b"})
    snapshot = Snapshot(verdicts=(undecided,), settings={"own": "a"})
    async with panel((own(),), size=(80, 8), snapshot=snapshot) as (shown, _):
        row = line_of(shown, "own")
        assert "◂─" in row
        assert "no difference" in row
        assert "+54.7" not in row


async def test_the_lever_under_the_cursor_is_explained_below_the_list():
    async with panel(size=(120, 18)) as (shown, pilot):
        while shown.chosen.name != "batch_size":
            shown.move(1)
        await pilot.pause()
        below = " ".join("".join(lines(shown)[15:]).split())
        assert below.startswith("batch_size, with a new loader: Samples in one step")
    async with panel(size=(120, 15)) as (shown, _):  # the list has its room first
        assert "Samples" not in words(shown)


async def test_a_reason_that_does_not_fit_below_the_figures_begins_at_the_axis():
    rows = own("one", refusal="the script has no DataLoader"), own("two")
    async with panel(rows, size=(66, 8)) as (shown, _):
        assert "┊" in line_of(shown, "two")
        assert "the script has no DataLoader" in line_of(shown, "one")


async def test_the_values_give_way_to_the_explanation():
    rows = (own(summary="Where the batches are made, and by how many processes at once."),)
    async with panel(rows, size=(96, 3)) as (shown, _):
        assert lines(shown)[2].rstrip().endswith("processes at once.")
    async with panel(rows, size=(120, 3)) as (shown, _):
        assert lines(shown)[2].rstrip().endswith("⏎ a, b")


async def test_the_panel_says_why_nothing_can_be_changed():
    async with panel(why_not="a recording is shown") as (shown, _):
        assert "a recording is shown" in lines(shown)[0]
    async with panel((), why_not="the levers of this run cannot be changed") as (shown, _):
        assert "the levers of this run cannot be changed" in words(shown)


async def test_a_lever_that_cannot_be_changed_is_last_with_the_reason():
    fixed = own("fixed", refusal="your script sets it")
    async with panel((fixed, own("idle", acts=False), own("own"))) as (shown, _):
        assert [line.split()[0].strip("▸") for line in lines(shown)[2:4]] == ["fixed", "idle"]
        assert line_of(shown, "fixed").rstrip().endswith("your script sets it")
        assert line_of(shown, "idle").rstrip().endswith("needs a GPU")


async def test_a_requested_value_is_shown_until_it_is_active():
    pending = changed(own(value="8"), pending="16")
    async with panel(rows=(pending,)) as (shown, _):
        assert "8 → 16 …" in line_of(shown, "own")


async def test_without_room_for_all_levers_the_number_of_others_is_shown():
    async with panel(size=(80, 7)) as (shown, pilot):
        assert "8 more↓" in lines(shown)[6]
        shown.move(9)
        await pilot.pause()
        assert "4 more↑" in lines(shown)[1]
        assert "4 more↓" in lines(shown)[6]
        shown.move(4)
        await pilot.pause()
        assert "8 more↑" in lines(shown)[1]
        assert "↓" not in "".join(lines(shown))


ODD = (
    own("שכבה של קידוד", "ערך ארוך מאוד " * 9, context="נגד א"),
    own("a-name-longer-than-any-panel-is-wide-" * 4, "b" * 200),
    own("many", "choice-59", choices=tuple(f"choice-{n}" for n in range(60))),
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
    ),
)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", [(), ODD, ODD * 20], ids=["none", "odd", "many"])
async def test_any_rows_fit_at_any_size(rows, size):
    async with panel(rows=rows, size=size, why_not="שכבה " + "x" * 90) as (shown, pilot):
        for _ in range(len(rows[:7]) + 1):
            drawn = lines(shown)
            assert all(cell_len(line) == size[0] for line in drawn)
            assert "\x1b" not in "".join(drawn)
            assert "failed" not in "".join(drawn)
            shown.move(1)
            await pilot.pause()
        assert ("no levers are known" in "".join(drawn)) == (not rows and size[0] >= 24)


@pytest.mark.parametrize("width", range(10, 60))
async def test_a_number_is_shown_whole_or_not_at_all(width):
    async with panel(rows=ODD[-1:], size=(width, 3)) as (shown, _):
        numbers = "".join(c if c.isdigit() else " " for c in lines(shown)[1]).split()
        assert set(numbers) <= {"999999999999999999", "123456789012345678"}


# ── what keys and mouse do ──────────────────────────────────────────────────────────────


THREE = own("one"), own("two"), own("three")


async def test_the_cursor_goes_round_and_the_wheel_does_not():
    async with panel(THREE) as (shown, pilot):
        shown.move(-1)
        assert shown.chosen.name == "three"
        shown.scroll_rows(1)
        assert shown.chosen.name == "three"
        shown.move(1)
        shown.scroll_rows(-1)
        assert shown.chosen.name == "one"
        point = {"x": 5, "y": 2, "delta_x": 0, "delta_y": 0, "button": 0}
        keys = {"shift": False, "meta": False, "ctrl": False}
        shown.post_message(events.MouseScrollDown(shown, **point, **keys))
        await pilot.pause()
        assert shown.chosen.name == "two"


async def test_find_goes_to_the_next_lever_with_the_text_in_its_name():
    async with panel(THREE) as (shown, _):
        for _ in range(2):  # from the only one round to itself
            assert shown.find("THR")
            assert shown.chosen.name == "three"
        assert shown.find("o")
        assert shown.chosen.name == "one"
        assert not shown.find("nothing like it")
        assert shown.chosen.name == "one"


async def test_without_levers_nothing_is_chosen_found_or_moved():
    async with panel(rows=()) as (shown, _):
        shown.move(1)
        shown.scroll_rows(1)
        assert not shown.find("a")
        assert shown.chosen is None


async def test_fewer_levers_leave_the_cursor_on_one_of_them():
    async with panel(THREE) as (shown, _):
        shown.move(-1)
        shown.show(THREE[:2], Snapshot())
        assert shown.chosen.name == "two"


async def test_the_cursor_stays_on_its_lever_where_others_come_or_go_before_it():
    one, two, three = THREE
    async with panel(THREE) as (shown, _):
        shown.move(1)
        for rows in [(own("new"), one, two, three), (two, three), (one, three, two)]:
            shown.show(rows, Snapshot())
            assert shown.chosen.name == "two"


async def test_a_click_chooses_and_a_second_one_acts_as_enter():
    async with panel(size=(80, 8)) as (shown, pilot):
        shown.move(9)  # the list has scrolled
        await pilot.pause()
        y = next(y for y, line in enumerate(lines(shown)) if "precision" in line)
        await pilot.click(offset=(5, y))
        assert (shown.chosen.name, pilot.app.did) == ("precision", [])
        await pilot.click(offset=(5, y))
        await pilot.pause()
        assert (shown.chosen.name, pilot.app.did) == ("precision", ["edit"])


async def test_a_click_on_the_explanation_does_nothing():
    async with panel(size=(120, 20)) as (shown, pilot):
        before = shown.chosen.name
        await pilot.click(offset=(5, 16))
        await pilot.pause()
        assert (shown.chosen.name, pilot.app.did) == (before, [])


def test_before_anything_ran_levers_are_as_this_device_starts_with_them():
    for device, precision in (("cpu", "fp32"), ("cuda", "tf32")):
        plan = Plan(workload="masked_loss", settings={}, device=device)
        assert Control(FakeEngine, plan).levers.active["precision"] == precision


async def test_which_batch_would_fit_stands_with_the_lever_whose_peaks_tell():
    fits = "batch 96 would fit, 112 would not (from the peaks at 32 and 64)"
    rows = (changed(own("batch_size", "64", choices=("32", "64")), forecast=fits), own("other"))
    async with panel(rows, size=(120, 6)) as (shown, pilot):
        assert fits in words(shown)
        shown.move(1)
        await pilot.pause()
        assert "would fit" not in words(shown)


# ── of the driver ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lever", ["power_limit", "sm_clock"])
async def test_levers_of_the_driver_are_shown_with_their_reason_and_no_key_moves_them(lever):
    snapshot = training()
    limited = gpu_sample(power_limit_w=700.0, sm_clock_mhz=1755.0)
    async with dashboard((120, 60), snapshot=changed(snapshot, gpu=limited)) as d:
        await d.choose(lever)
        value = {"power_limit": "700 W", "sm_clock": "1755 MHz"}[lever]
        (row,) = (line for line in d.text().splitlines() if lever in line and value in line)
        assert "needs root" in row
        for key in ("enter", "right", "left", "a"):
            await d.press(key)
            assert d.app.screen is d.app.main_screen
        (said,) = set(d.notices())
        assert said.startswith(f"{lever}: needs root: nvidia-smi ")
        assert not d.engine.requests
