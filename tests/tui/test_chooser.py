"""The chooser: what A/Bs have shown of each value of a lever, and the answers of the dialog."""

from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from textual import events
from textual.app import App

from gpudash.protocol.readings import HostReading
from gpudash.protocol.training import LeverOffer
from gpudash.tui import app
from gpudash.tui.cells import bar_of
from gpudash.tui.lever_values import MeasuredValue, fitting, measured_values, rate_unit
from gpudash.tui.screens.chooser import Chooser, ChosenValue
from tests.tui.comparisons import compared
from tests.tui.driving import dashboard, strips_of
from tests.tui.fake_engine import CPU, H200, gpu_sample, result, settings, training
from workloads import CATALOGUE
from workloads.levers import Choice, find

changed = msgspec.structs.replace
LEVERS = CATALOGUE["encdec"].levers
BATCH_SIZE, PIPELINED, MODEL = (find(LEVERS, n) for n in ("batch_size", "pipelined", "model_scale"))


def row(number, rate, /, **values):
    return result(number, "a row", rate, settings=settings(**values), samples_per_s=rate)


def offer(name, *choices):
    texts = {"summary": "", "source": ""}
    return LeverOffer(name=name, kind="choice", default=choices[0], choices=choices, **texts)


def known(lever, now, rows, verdicts=(), default="8", **active):
    snapshot = changed(training(), results=tuple(rows), verdicts=tuple(verdicts))
    values = measured_values(lever, now, default, settings(**active), snapshot)
    return {one.value: one for one in values}


def verdict(a, b, change, **active):
    others = {name: value for name, value in settings(**active).items() if name != "batch_size"}
    rates = {"lever": "batch_size", "a": a, "b": b, "change": change}
    return compared(40, **rates, verdict="so", settings=others)


# ── what is known of the values ─────────────────────────────────────────────────────────


def test_settings_tried_one_after_another_prove_nothing_of_a_value():
    rows = [row(1, 2583.0), row(2, 3626.0, batch_size="16")]
    values = known(BATCH_SIZE, "8", rows)
    assert values["8"] == MeasuredValue(value="8")
    assert values["16"] == MeasuredValue(value="16")


def test_a_verdict_is_read_from_either_side():
    here = known(BATCH_SIZE, "8", [], [verdict("8", "16", 0.25)])
    assert here["16"] == MeasuredValue(value="16", known="+25.0 % by an A/B")
    back = known(BATCH_SIZE, "16", [], [verdict("8", "16", 0.25)], batch_size="16")
    assert back["8"].known == "-20.0 % by an A/B"


def test_a_verdict_found_with_other_levers_set_says_nothing_here():
    values = known(BATCH_SIZE, "8", [], [verdict("8", "16", 0.25, pipelined="on")])
    assert values["16"] == MeasuredValue(value="16")


def test_numbers_offered_are_those_tried_the_default_and_neighbours():
    rows = [row(1, 1.0, batch_size="100")]
    offered = list(known(BATCH_SIZE, "48", rows, batch_size="48"))
    assert offered == ["8", "16", "32", "48", "64", "100", "128", "256", "512"]
    assert list(known(MODEL, "full", [])) == ["auto", "full", "small"]


@pytest.mark.parametrize(("device", "default"), [(CPU, "16"), (H200, "256")])
async def test_the_default_offered_is_the_one_on_this_device(device, default):
    at_one = settings(batch_size="1")  # both are beyond its neighbours
    snapshot = changed(training(), workload="masked_loss", device=device, settings=at_one)
    async with dashboard(snapshot=snapshot) as d:
        control = d.app.control
        values = control.levers.values(control.levers.lever("batch_size"))
        assert values[-1].value == default


async def test_a_scripts_lever_shows_its_verdict_though_others_are_unknown():
    """Its recorded settings leave out unknown values, such as of a loader that was not found."""
    offers = (offer("precision", "script", "bf16"), offer("num_workers", "unknown"))
    plain = {"precision": "script"}
    shown = compared(40, lever="precision", a="script", b="bf16", change=0.25, verdict="so")
    snapshot = changed(
        training(),
        workload="train.py",
        levers=offers,
        settings=plain,
        verdicts=(changed(shown, settings={}),),
    )
    async with dashboard(snapshot=snapshot) as d:
        control = d.app.control
        script, bf16 = control.levers.values(control.levers.lever("precision"))
        assert (script.known, bf16.known) == ("", "+25.0 % by an A/B")


def test_a_training_without_samples_is_shown_in_steps_per_s():
    assert rate_unit([changed(row(1, 10.0), samples_per_s=None)]) == "steps/s"
    assert rate_unit([row(1, 10.0)]) == "samples/s"
    assert rate_unit([]) == "samples/s"


@pytest.mark.parametrize(
    ("share", "drawn"), [(0, "    "), (1, "████"), (0.5, "██  "), (0.4, "█▋  ")]
)
def test_bars_are_drawn_to_an_eighth_of_a_cell(share, drawn):
    assert bar_of(share, 4).ljust(4) == drawn


# ── what is estimated to fit ────────────────────────────────────────────────────────────


HELD = HostReading(at_s=0.0, values={"mem_reserved_mib": 6000.0})


def estimates(*rows, **active):
    """What is said of each batch size after these rows of (batch size, GiB)."""
    found = [
        changed(
            row(n, 100.0 * n, batch_size=str(size)),
            values={"mem_peak_mib": 1024.0 * gib, "mem_reserved_mib": 1024.0 * gib * 1.1},
        )
        for n, (size, gib) in enumerate(rows, 1)
    ]
    now = str(rows[-1][0])
    shown = changed(training(), results=tuple(found), host=HELD)
    values = measured_values(BATCH_SIZE, now, "8", settings(**{"batch_size": now, **active}), shown)
    return {one.value: one.known for one in values}


def test_a_larger_batch_is_estimated_from_the_two_largest_that_were_measured():
    found = estimates((8, 30.0), (16, 40.0), (32, 60.0))  # of 140.4 GiB
    assert found["64"] == "fits, ~110.0 GiB"
    assert found["128"] == "does not fit, ~180.0 GiB"


def test_between_what_the_allocator_may_hold_and_what_tensors_need_nothing_is_certain():
    found = estimates((16, 38.0), (32, 70.0))  # of 139.6 GiB; the allocator holds a tenth more
    assert found["64"] == "may not fit, ~134.0 GiB"


def test_one_measured_size_gives_no_estimate():
    assert set(estimates((8, 30.0)).values()) == {""}


def test_sizes_measured_with_other_levers_say_nothing():
    assert set(estimates((8, 30.0), (16, 40.0), pipelined="on").values()) == {""}


def test_memory_used_by_others_is_not_available_for_a_batch():
    rows = tuple(
        changed(
            row(n, 100.0 * n, batch_size=str(8 * n)),
            values=dict.fromkeys(("mem_peak_mib", "mem_reserved_mib"), 20_000.0 * n),
        )
        for n in (1, 2)
    )
    alone = changed(training(), results=rows, host=HELD, gpu=gpu_sample(mem_free_mib=137_000.0))
    shared = changed(alone, gpu=gpu_sample(mem_free_mib=57_000.0))
    fits = [fitting(BATCH_SIZE, settings(batch_size="8"), one) for one in (alone, shared)]
    assert [(one.fits, one.exceeds) for one in fits if one] == [(56, 64), (24, 28)]


def test_no_estimate_for_another_lever_or_without_readings():
    unread = changed(training(), results=ROWS, gpu=None)
    assert fitting(BATCH_SIZE, settings(), unread) is None
    assert fitting(BATCH_SIZE, settings(), changed(unread, gpu=gpu_sample(), host=None)) is None
    assert fitting(PIPELINED, settings(), training()) is None


# ── the dialog ──────────────────────────────────────────────────────────────────────────

ROWS = (row(2, 2583.0), row(3, 3626.0, batch_size="16"), row(6, 4690.0, batch_size="32"))
SNAPSHOT = changed(training(), results=ROWS, verdicts=(verdict("8", "16", 0.4),))
NAMES = Choice(
    name="שכבה",
    default="value-0",
    choices=(*(f"value-{n}" for n in range(59)), "ערך " * 40),
    effect="next step",
    summary="",
    source="",
)


class Host(App):
    """An app that opens a chooser and keeps its answers."""

    CSS_PATH = Path(app.__file__).with_name("style.tcss")

    def __init__(self, chooser):
        super().__init__()
        self.chooser, self.answers = chooser, []

    def on_mount(self):
        self.push_screen(self.chooser, self.answers.append)


def chooser(lever=BATCH_SIZE, now="8"):
    values = measured_values(lever, now, lever.default_text, settings(), SNAPSHOT)
    return Chooser(lever, now, values)


@asynccontextmanager
async def asked(lever=BATCH_SIZE, now="8", size=(80, 24)) -> Iterator:
    app = Host(chooser(lever, now))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, pilot


def shown(app):
    return [strip.text for strip in strips_of(app)]


async def test_it_shows_what_is_known_of_the_values_and_no_rates():
    async with asked() as (app, _):
        lines = [line.strip(" │") for line in shown(app) if line.strip(" │")]
        assert lines[1] == "batch_size, new loader"
        rows = {line.split()[0]: line.split()[1:] for line in lines[2:-3]}
        assert rows["8"] == ["now"]
        assert rows["16"] == ["+40.0", "%", "by", "an", "A/B"]
        assert rows["64"] == []
        assert "type any number to 1,048,576" in lines[-3]
        assert lines[-2] == "enter set · a A/B against 8 · c code · esc cancels"


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["enter"], None),
        (["down", "enter"], ChosenValue("set", "16")),
        (["up", "enter"], ChosenValue("set", "4")),
        (["j", "j", "k", "a"], ChosenValue("compare", "16")),
        (["1", "2", "enter"], ChosenValue("set", "12")),
        (["1", "2", "backspace", "a"], ChosenValue("compare", "1")),
        (["1", "2", "down", "enter"], ChosenValue("set", "16")),
        (["home", "up", "enter"], ChosenValue("set", "2")),
        (["end", "pagedown", "enter"], ChosenValue("set", "128")),
        (["8", "enter"], None),
        (["escape"], None),
    ],
)
async def test_keys_answer(keys, answer):
    async with asked() as (app, pilot):
        await pilot.press(*keys)
        await pilot.pause()
        assert app.answers == [answer]


SIDES = Choice(
    name="side", default="left", choices=("auto", "left", "right"), effect="next step",
    summary="", source="",
)  # fmt: skip


@pytest.mark.parametrize(
    ("lever", "now", "meant"),
    [(BATCH_SIZE, "8", "16"), (SIDES, "left", "right"), (SIDES, "right", "left")],
    ids=["the next", "the next but auto, which cannot be compared", "the one before the last"],
)
async def test_the_chooser_of_an_ab_preselects_the_next_value(lever, now, meant):
    values = measured_values(lever, now, lever.default_text, settings(), SNAPSHOT)
    app = Host(Chooser(lever, now, values, compares=True))
    async with app.run_test() as pilot:
        await pilot.press("enter")
        await pilot.pause()
        assert app.answers == [ChosenValue("compare", meant)]


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (["0", "enter"], "not valid: a whole number"),
        (["a"], "it is 8 now"),
        (["8", "a"], "it is 8 now"),
    ],
)
async def test_an_invalid_answer_shows_why_and_the_dialog_stays(keys, why):
    async with asked() as (app, pilot):
        await pilot.press(*keys)
        await pilot.pause()
        assert app.answers == []
        assert any(why in line for line in shown(app))


async def test_a_value_that_stands_for_another_one_can_be_set_but_not_compared():
    async with asked(MODEL, "full") as (app, pilot):
        await pilot.press("home", "a")
        await pilot.pause()
        assert any("auto stands for another value" in line for line in shown(app))
        await pilot.press("enter")
        await pilot.pause()
        assert app.answers == [ChosenValue("set", "auto")]


async def test_keys_that_arrive_together_answer_once():
    async with asked() as (app, pilot):
        for key in ("down", *["enter"] * 5, "a", "escape"):
            app.post_message(events.Key(key, {"enter": "\r", "a": "a"}.get(key)))
        await pilot.pause()
        await pilot.pause()
        assert app.answers == [ChosenValue("set", "16")]


async def test_a_held_down_key_stops_at_the_last_value():
    async with asked(NAMES, "value-0", (80, 24)) as (app, pilot):
        await pilot.press(*["down"] * 100)
        await pilot.pause()
        assert any("ערך" in line for line in shown(app))
        assert not any(" value-0  " in line for line in shown(app))


@pytest.mark.parametrize("typed", ["10000000", "1" + 11 * "0"])
async def test_a_number_that_is_too_long_is_refused_as_it_was_typed(typed):
    async with asked() as (app, pilot):
        await pilot.press(*typed)
        assert any(f"batch_size = {typed}▏" in line for line in shown(app))
        await pilot.press("enter", "a")
        await pilot.pause()
        assert app.answers == []
        refused = f"{typed} is not valid: a whole number from 1 to 1048576 "
        assert any(refused in line for line in shown(app))


async def test_more_digits_than_any_number_has_are_refused_in_a_line():
    async with asked() as (app, pilot):
        await pilot.press(*"9" * 13)
        assert any("a number has at most 12 digits" in line for line in shown(app))
        await pilot.press("enter")
        await pilot.pause()
        assert app.answers == []


async def test_a_click_chooses_and_a_second_one_sets():
    async with asked() as (app, pilot):
        y = next(y for y, line in enumerate(shown(app)) if "32 " in line)
        await pilot.click(offset=(20, y))
        assert app.answers == []
        await pilot.click(offset=(20, y))
        await pilot.pause()
        assert app.answers == [ChosenValue("set", "32")]


async def test_the_words_of_the_hint_are_buttons():
    async with asked() as (app, pilot):
        lines = shown(app)
        y = next(y for y, line in enumerate(lines) if "esc" in line)
        await pilot.click(offset=(lines[y].index("esc") + 1, y))
        await pilot.pause()
        assert app.answers == [None]


@pytest.mark.parametrize("size", [(20, 5), (30, 8), (40, 12), (80, 24), (200, 50), (400, 120)])
@pytest.mark.parametrize(
    ("lever", "now"), [(BATCH_SIZE, "8"), (NAMES, "value-7"), (MODEL, "full"), (PIPELINED, "off")]
)
async def test_it_stands_at_any_size(lever, now, size):
    async with asked(lever, now, size) as (app, pilot):
        await pilot.press("down", "down", "up")
        await pilot.pause()
        text = "\n".join(shown(app))
        assert "failed" not in text
        assert len(app.screen.children) == 1


async def test_an_error_is_shown_in_full():
    snapshot = changed(training(), results=())
    values = measured_values(BATCH_SIZE, "8", "8", settings(), snapshot)
    app = Host(Chooser(BATCH_SIZE, "8", values))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("0", "enter")
        await pilot.pause()
        text = "\n".join(shown(app))
        assert "0 is not valid: a whole number from 1 to" in text
