"""The lever panel alone: what it shows at each size, and what keys and mouse do to it."""

import pytest
from msgspec.structs import replace as changed
from rich.cells import cell_len
from textual import events

from gpudash.present.ledger import LeverRow
from gpudash.protocol.answer import Answer, Gain, Try
from gpudash.protocol.commands import Plan
from gpudash.protocol.training import Lever
from gpudash.snapshot import Snapshot
from gpudash.tui.control import Control
from gpudash.tui.widgets.comparison import comparison_rows
from gpudash.tui.widgets.levers import LeverPanel
from tests.present.test_ledger import verdict
from tests.tui.alone import Alone
from tests.tui.comparisons import compared, text_of
from tests.tui.driving import dashboard, mouse
from tests.tui.fake_engine import FakeEngine, gpu_sample, training
from tests.tui.frames import painted
from tests.tui.test_verdicts import after
from workloads import CATALOGUE

MOVED = {"pipelined": "on", "batch_size": "32", "data": "resident", "backward_thread": "autograd"}
USUAL, NARROW = (120, 17), (80, 8)
SIZES = [(20, 5), (24, 12), (34, 28), (80, 8), (400, 120)]


def panel(rows=None, snapshot=None, why_not=None):
    """The panel with these rows, or with those of a run after an A/B."""
    shown, run = LeverPanel(id="levers"), after(**MOVED)
    snapshot = snapshot or (run.snapshot if rows is None else Snapshot())
    shown.show(run.levers.rows() if rows is None else rows, snapshot, why_not)
    return shown


@pytest.fixture
def shown():
    return panel()


def lines(shown, size=USUAL):
    return painted(shown, size)


def words(shown, size=USUAL):
    """All that is shown, without the ends of lines."""
    return " ".join(" ".join(lines(shown, size)).split())


def line_of(shown, name, size=USUAL):
    (line,) = [line for line in lines(shown, size) if line[1:].lstrip(" ▸◐").startswith(f"{name} ")]
    return line


def own(name="own", value="a", **values):
    choices = values.pop("choices", ("a", "b"))
    lever = Lever(
        name=name, kind="choice", default=choices[0], choices=choices, source="",
        summary=values.pop("summary", ""), refusal=values.pop("refusal", None),
    )  # fmt: skip
    return LeverRow(lever=lever, value=value, pending=values.pop("pending", None), **values)


def proposing(*tries):
    return Snapshot(answer=Answer(limit="gpu", title="GPU-bound", tries=tries))


PROMISED = Try("other", "b", "", "a", Gain(10.0, 20.0), 10)


def test_the_cursor_begins_on_the_proposal_and_stays_where_it_was_moved():
    rows = own("one"), own("other")
    shown = panel(rows, proposing(PROMISED))
    assert shown.chosen.name == "other"
    shown.move(1)
    assert shown.chosen.name == "one"
    shown.show(rows, proposing(Try("one", "b", "", "a", Gain(50.0, 60.0)), PROMISED))
    assert shown.chosen.name == "one"


# ── what is shown ───────────────────────────────────────────────────────────────────────


def test_what_can_be_tried_or_is_proven_is_in_sight_and_the_rest_is_folded_and_counted(shown):
    assert "off → [on]" in line_of(shown, "pipelined")
    every = [row.lever.name for row in after(**MOVED).levers.rows()]
    in_sight = [name for name in every if f" {name} " in words(shown)]
    (fold,) = [line for line in lines(shown) if " more: " in line]
    assert int(fold.split()[0]) == len(every) - len(in_sight)
    assert "not foreseen" in fold
    assert shown.wanted_rows == len(in_sight) + 3  # a rule, the fold, an explanation


def test_a_default_of_this_device_is_nothing_that_somebody_has_set():
    rows = tuple(own(name, "b", default="b") for name in ("one", "two", "three", "four", "five"))
    shown = panel((*rows, own("other"), own("set", "b")), proposing(PROMISED))
    assert shown.wanted_rows == len(("rule", "other", "set", "one", "two", "fold", "explanation"))


def test_a_proposal_that_comes_and_goes_moves_no_fold():
    rows = tuple(map(own, ("one", "two", "three", "four", "five", "six", "other", "seven")))
    more = tuple(Try(one.lever.name, "b", "", "a", Gain(10.0, 20.0), 10) for one in rows[:5])
    shown = panel(rows, proposing(*more))
    before = shown.wanted_rows
    for tries in (PROMISED,), (), more[:2]:
        shown.show(rows, proposing(*tries))
        assert shown.wanted_rows >= before
        assert all(line_of(shown, one.lever) for one in more)
    shown.show(rows[1:], proposing())  # another training's
    assert shown.wanted_rows < before


def test_the_fold_opens_when_the_cursor_goes_into_it_and_closes_behind_it(shown):
    expected = {
        "batch_size": "[32]",
        "pin_memory": "[off] → on",
        "data": "[resident]",
        "backward_thread": "[autograd]",
        "model_scale": "[full]",
    }
    shown.move(-1)  # around the begin, to the last one
    for name, value in expected.items():
        assert line_of(shown, name).split(name)[1].strip().startswith(value)
    assert all(line_of(shown, lever.name) for lever in CATALOGUE["encdec"].levers)
    assert "more" not in "".join(lines(shown))
    shown.move(1)
    assert "more: " in "".join(lines(shown))


def test_a_click_on_the_fold_opens_it(shown):
    (at,) = [y for y, line in enumerate(lines(shown)) if " more: " in line]
    shown.clicked(10, at - 1)
    assert "more" not in "".join(lines(shown))


@pytest.mark.parametrize("to", ["b", "tensor_decode_in_workers"])
def test_80_columns_have_the_axis_too(to):
    one = own("fused_optimizer", choices=("a", to))
    proposed = Try("fused_optimizer", to, "", "a", Gain(10.0, 20.0), 10)
    shown = panel((one,), proposing(proposed))
    assert "0" in lines(shown, NARROW)[0]
    assert "+20 %" in lines(shown, NARROW)[0]
    assert "┊" in line_of(shown, "fused_optimizer", NARROW)


NO_DIFFERENCE = verdict("own", -0.3, 0.05, 0.5, a="a", b="b")
ELSEWHERE = verdict("own", -0.3, 0.547, 2.427, a="a", b="b", settings={"other": "b"})
HAS_NO_LOADER = own("one", refusal="the script has no DataLoader")


@pytest.mark.parametrize(
    ("what", "rows", "snapshot", "size", "name", "shown", "hidden"),
    [
        ("a proof has a dot, its interval and its A/B", None, None, USUAL, "pipelined",
         ["●", "+6.0 % [+5.9, +6.1]", "A/B 1"], []),
        ("an interval that shows no difference is on the axis too", (own(), own("other")),
         changed(proposing(PROMISED), verdicts=(NO_DIFFERENCE,), settings={"own": "a"}),
         USUAL, "own", ["├─", "─●─", "─┤"], []),
        ("without room for both no difference is said, and not the figure", (own(),),
         Snapshot(verdicts=(ELSEWHERE,), settings={"own": "a"}), NARROW, "own",
         ["no difference"], ["+54.7"]),
        ("a reason that does not fit below the figures begins at the axis",
         (HAS_NO_LOADER, own("two")), None, (66, 8), "one", ["the script has no DataLoader"], []),
        ("which other rows have", (HAS_NO_LOADER, own("two")), None, (66, 8), "two", ["┊"], []),
        ("a requested value is shown until it is active",
         (changed(own(value="8"), pending="16"),), None, USUAL, "own", ["8 → 16 …"], []),
    ],
)  # fmt: skip
def test_a_levers_line(what, rows, snapshot, size, name, shown, hidden):
    line = line_of(panel(rows, snapshot), name, size)
    assert [text for text in shown if text not in line] == [], what
    assert [text for text in hidden if text in line] == [], what


@pytest.mark.parametrize("alone", [False, True])
def test_the_axis_stands_still_while_an_a_b_runs_whatever_it_finds(alone):
    levers, drawn = (own("pipelined"), own("other")), set()
    ledger = panel(levers, proposing(PROMISED))
    for pairs, high in ((7, 0.2), (9, 4.0), (30, 0.06)):
        shown = compared(pairs, high=high)
        ledger.show(levers, changed(proposing(PROMISED), comparison=shown))
        lines(ledger, (120, 8))
        axis, *_ = text_of(comparison_rows(shown, 120, 8, placed=None if alone else ledger.axis))[
            1:
        ]
        drawn.add(axis)
    assert len(drawn) == 1
    assert "+20 %" in drawn.pop() or alone


def test_the_panel_says_why_nothing_can_be_changed():
    assert "a recording is shown" in lines(panel(why_not="a recording is shown"))[0]
    fixed = "the levers of this run cannot be changed"
    assert fixed in words(panel((), why_not=fixed))


def test_a_lever_that_cannot_be_changed_is_last_with_the_reason():
    shown = panel((own("fixed", refusal="your script sets it"), own("idle", acts=False), own()))
    assert [line.split()[0].strip("▸") for line in lines(shown)[2:4]] == ["fixed", "idle"]
    assert line_of(shown, "fixed").rstrip().endswith("your script sets it")
    assert line_of(shown, "idle").rstrip().endswith("needs a GPU")


def test_without_room_for_all_levers_the_number_of_others_is_shown(shown):
    shown.move(9)
    assert "4 more↑" in lines(shown, (80, 7))[1]
    assert "6 more↓" in lines(shown, (80, 7))[6]
    shown.move(6)
    assert "10 more↑" in lines(shown, (80, 7))[1]
    assert "↓" not in "".join(lines(shown, (80, 7)))


ODD = (
    own("שכבה של קידוד", "ערך ארוך מאוד " * 9, context="נגד א"),
    own("a-name-longer-than-any-panel-is-wide-" * 4, "b" * 200),
    own("many", "choice-59", choices=tuple(f"choice-{n}" for n in range(60))),
    own("電源", "電" * 60, pending="源" * 60),
    own("\x1b[31mred", "\x07"),
    LeverRow(
        lever=Lever(
            name="huge",
            kind="count",
            default="1",
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
def test_any_rows_fit_at_any_size(rows, size):
    shown = panel(rows, why_not="שכבה " + "x" * 90)
    for _ in range(len(rows[:7]) + 1):
        drawn = lines(shown, size)
        assert {*map(cell_len, drawn)} == {size[0]}
        assert "\x1b" not in "".join(drawn)
        shown.move(1)
    assert ("no levers are known" in "".join(drawn)) == (not rows and size[0] >= 24)


def test_a_number_is_shown_whole_or_not_at_all():
    shown = panel(ODD[-1:])
    for width in range(10, 60):
        row = lines(shown, (width, 3))[1]
        numbers = "".join(c if c.isdigit() else " " for c in row).split()
        assert set(numbers) <= {"999999999999999999", "123456789012345678"}


# ── what keys and mouse do ──────────────────────────────────────────────────────────────


THREE = own("one"), own("two"), own("three")


def test_find_goes_to_the_next_lever_with_the_text_in_its_name():
    shown = panel(THREE)
    for text, found in (("THR", "three"), ("THR", "three"), ("o", "one")):  # round to itself, too
        assert shown.find(text)
        assert shown.chosen.name == found
    assert not shown.find("nothing like it")
    assert shown.chosen.name == "one"


def test_without_levers_nothing_is_chosen_found_or_moved():
    shown = panel(rows=())
    shown.move(1)
    shown.scroll_rows(1)
    assert not shown.find("a")
    assert shown.chosen is None


def test_fewer_levers_leave_the_cursor_on_one_of_them():
    shown = panel(THREE)
    shown.move(-1)
    shown.show(THREE[:2], Snapshot())
    assert shown.chosen.name == "two"


def test_the_cursor_stays_on_its_lever_where_others_come_or_go_before_it():
    one, two, three = THREE
    shown = panel(THREE)
    shown.move(1)
    for rows in [(own("new"), one, two, three), (two, three), (one, three, two)]:
        shown.show(rows, Snapshot())
        assert shown.chosen.name == "two"


async def test_the_cursor_goes_round_and_the_wheel_does_not():
    shown = panel()
    async with Alone(shown).run_test(size=(80, 8)) as pilot:
        shown.show(THREE, Snapshot())
        for move, to in ((shown.move, -1), (shown.scroll_rows, 1)):
            move(to)
            assert shown.chosen.name == "three"
        shown.move(1)
        shown.scroll_rows(-1)
        assert shown.chosen.name == "one"
        await mouse(pilot, [events.MouseScrollDown], shown, offset=(5, 2))
        assert shown.chosen.name == "two"


async def test_a_click_chooses_and_a_second_one_acts_as_enter_but_not_on_the_explanation():
    app = Alone(shown := panel())
    async with app.run_test(size=(80, 22)) as pilot:
        before = shown.chosen.name
        await pilot.click(offset=(5, 18))
        assert (shown.chosen.name, app.asked) == (before, [])
        await pilot.resize_terminal(80, 8)
        shown.move(9)  # the list scrolls
        seen = [shown.render_line(y).text for y in range(8)]
        y = next(y for y, line in enumerate(seen) if "precision" in line)
        for did in ([], ["edit"]):
            await pilot.click(offset=(5, y))
            await pilot.pause()
            assert (shown.chosen.name, app.asked) == ("precision", did)


def test_before_anything_ran_levers_are_as_this_device_starts_with_them():
    for device, precision in (("cpu", "fp32"), ("cuda", "tf32")):
        plan = Plan(workload="masked_loss", settings={}, device=device)
        assert Control(FakeEngine, plan).levers.active["precision"] == precision


def test_which_batch_would_fit_stands_with_the_lever_whose_peaks_tell():
    fits = "batch 96 would fit, 112 would not (from the peaks at 32 and 64)"
    rows = (changed(own("batch_size", "64", choices=("32", "64")), forecast=fits), own("other"))
    shown = panel(rows)
    assert fits in words(shown, (120, 6))
    shown.move(1)
    assert "would fit" not in words(shown, (120, 6))


async def test_levers_of_the_driver_are_shown_with_their_reason_and_no_key_moves_them():
    limited = gpu_sample(power_limit_w=700.0, sm_clock_mhz=1755.0)
    async with dashboard((120, 60), snapshot=changed(training(), gpu=limited)) as d:
        for lever, value in (("power_limit", "700 W"), ("sm_clock", "1755 MHz")):
            d.choose(lever)
            (row,) = (line for line in d.lines() if lever in line and value in line)
            assert "needs root" in row
            for key in ("enter", "right", "left", "a"):
                await d.press(key)
                assert d.app.screen is d.app.main_screen
            (said,) = d.notices()
            assert said.startswith(f"{lever}: needs root: nvidia-smi ")
            d.app.clear_notifications()
        assert not d.engine.requests
