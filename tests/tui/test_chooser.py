"""The chooser: what A/Bs have shown of each value of a lever, and the answers of the dialog."""

from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace as changed
from textual import events
from textual.app import App

from gpudash.present.ledger import MeasuredValue, fitting, measured_values
from gpudash.protocol.readings import HostReading
from gpudash.protocol.training import Lever
from gpudash.reference_levers import reference_levers
from gpudash.tui import app
from gpudash.tui.screens.chooser import Chooser, ChosenValue
from tests.tui.comparisons import compared
from tests.tui.driving import strips_of
from tests.tui.fake_engine import CPU, H200, gpu_sample, result, settings, training
from tests.tui.frames import control_of
from workloads.levers import find

LEVERS = reference_levers("encdec", {})
BATCH_SIZE, PIPELINED, MODEL = (find(LEVERS, n) for n in ("batch_size", "pipelined", "model_scale"))


def row(number, rate, /, **values):
    return result(number, "a row", rate, settings=settings(**values), samples_per_s=rate)


def offer(name, *choices):
    texts = {"summary": "", "source": ""}
    return Lever(name=name, kind="choice", default=choices[0], choices=choices, **texts)


def known(lever, now, rows, verdicts=(), default="8", **active):
    snapshot = changed(training(), results=tuple(rows), verdicts=tuple(verdicts))
    values = measured_values(lever, now, default, settings(**active), snapshot)
    return {one.value: one for one in values}


def verdict(a, b, change, **active):
    others = {name: value for name, value in settings(**active).items() if name != "batch_size"}
    rates = {"lever": "batch_size", "a": a, "b": b, "change": change}
    return compared(40, **rates, verdict="so", settings=others)


# ── what is known of the values ─────────────────────────────────────────────────────────


TRIED = [row(1, 2583.0), row(2, 3626.0, batch_size="16")]
FASTER = verdict("8", "16", 0.25)


@pytest.mark.parametrize(
    ("what", "now", "rows", "verdicts", "said"),
    [
        ("settings tried one after another prove nothing", "8", TRIED, [], {"8": "", "16": ""}),
        ("a verdict is read from one side", "8", [], [FASTER], {"16": "+25.0 % by an A/B"}),
        ("and from the other", "16", [], [FASTER], {"8": "-20.0 % by an A/B"}),
        ("one found with other levers set says nothing", "8", [],
         [verdict("8", "16", 0.25, pipelined="on")], {"16": ""}),
    ],
)  # fmt: skip
def test_of_a_value_is_known(what, now, rows, verdicts, said):
    values = known(BATCH_SIZE, now, rows, verdicts, batch_size=now)
    assert {name: values[name] for name in said} == {
        name: MeasuredValue(value=name, known=text) for name, text in said.items()
    }, what


def test_numbers_offered_are_those_tried_the_default_and_neighbours():
    rows = [row(1, 1.0, batch_size="100")]
    offered = list(known(BATCH_SIZE, "48", rows, batch_size="48"))
    assert offered == ["8", "16", "32", "48", "64", "100", "128", "256", "512"]
    assert list(known(MODEL, "full", [])) == ["auto", "full", "small"]


def offered(lever, snapshot):
    levers = control_of(snapshot).levers
    return levers.values(levers.lever(lever))


def test_the_default_offered_is_the_one_on_this_device():
    at_one = settings(batch_size="1")  # both are beyond its neighbours
    for device, default in ((CPU, "16"), (H200, "256")):
        snapshot = changed(training(), workload="masked_loss", device=device, settings=at_one)
        assert offered("batch_size", snapshot)[-1].value == default


def test_a_scripts_lever_shows_its_verdict_though_others_are_unknown():
    """Its recorded settings leave out unknown values, such as of a loader that was not found."""
    offers = (offer("precision", "script", "bf16"), offer("num_workers", "unknown"))
    shown = compared(40, lever="precision", a="script", b="bf16", change=0.25, verdict="so")
    snapshot = changed(
        training(),
        workload="train.py",
        found="AdamW",
        levers=offers,
        settings={"precision": "script"},
        verdicts=(changed(shown, settings={}),),
    )
    script, bf16 = offered("precision", snapshot)
    assert (script.known, bf16.known) == ("", "+25.0 % by an A/B")


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


@pytest.mark.parametrize(
    ("what", "rows", "active", "said"),
    [
        ("a larger batch is estimated from the two largest that were measured, of 140.4 GiB",
         [(8, 30.0), (16, 40.0), (32, 60.0)], {},
         {"64": "fits, ~110.0 GiB", "128": "does not fit, ~180.0 GiB"}),
        ("between what the allocator, with a tenth more, and what tensors need, none is certain",
         [(16, 38.0), (32, 70.0)], {}, {"64": "may not fit, ~134.0 GiB"}),
        ("one measured size gives no estimate", [(8, 30.0)], {}, {"16": "", "512": ""}),
        ("sizes measured with other levers say nothing", [(8, 30.0), (16, 40.0)],
         {"pipelined": "on"}, {"32": "", "512": ""}),
    ],
)  # fmt: skip
def test_of_a_larger_batch_is_estimated(what, rows, active, said):
    found = estimates(*rows, **active)
    assert {size: found.get(size, "") for size in said} == said, what
    assert any(said.values()) or not any(found.values()), what


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
NAMES = Lever(
    kind="choice",
    name="שכבה",
    default="value-0",
    choices=(*(f"value-{n}" for n in range(59)), "ערך " * 40),
    effect="next step",
    summary="",
    source="",
)


class Host(App):
    """An app that opens choosers, one after another."""

    CSS_PATH = Path(app.__file__).with_name("style.tcss")


class Asking:
    """A chooser's dialog, the keys that are pressed in it, and what it answers."""

    def __init__(self, pilot):
        self.pilot, self.app, self.answers = pilot, pilot.app, []

    async def open(self, lever=BATCH_SIZE, now="8", **how):
        while len(self.app.screen_stack) > 1:
            self.app.pop_screen()
        values = measured_values(lever, now, lever.default, settings(), SNAPSHOT)
        self.answers.clear()
        self.app.push_screen(Chooser(lever, now, values, **how), self.answers.append)
        await self.pilot.pause()

    async def press(self, *keys):
        await self.pilot.press(*keys)
        await self.pilot.pause()

    def lines(self):
        return [strip.text for strip in strips_of(self.app)]

    def says(self, text):
        return any(text in line for line in self.lines())


@asynccontextmanager
async def asking(size=(80, 24)):
    async with Host().run_test(size=size) as pilot:
        one = Asking(pilot)
        await one.open()
        yield one


async def test_it_shows_what_is_known_of_the_values_and_no_rates():
    async with asking() as one:
        lines = [line.strip(" │") for line in one.lines() if line.strip(" │")]
    assert lines[1] == "batch_size, new loader"
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:-3]}
    assert rows["8"] == ["now"]
    assert rows["16"] == ["+40.0", "%", "by", "an", "A/B"]
    assert rows["64"] == []
    assert "type any number to 1,048,576" in lines[-3]
    assert lines[-2] == "enter set · a A/B against 8 · c code · esc cancels"


SIDES = Lever(
    kind="choice",
    name="side", default="left", choices=("auto", "left", "right"), effect="next step",
    summary="", source="",
)  # fmt: skip
AB = {"compares": True}


async def test_keys_answer():
    async with asking() as one:
        for how, keys, answer in (
            ({}, ["enter"], None),
            ({}, ["down", "enter"], ChosenValue("set", "16")),
            ({}, ["up", "enter"], ChosenValue("set", "4")),
            ({}, ["j", "j", "k", "a"], ChosenValue("compare", "16")),
            ({}, ["1", "2", "enter"], ChosenValue("set", "12")),
            ({}, ["1", "2", "backspace", "a"], ChosenValue("compare", "1")),
            ({}, ["1", "2", "down", "enter"], ChosenValue("set", "16")),
            ({}, ["home", "up", "enter"], ChosenValue("set", "2")),
            ({}, ["end", "pagedown", "enter"], ChosenValue("set", "128")),
            ({}, ["8", "enter"], None),
            ({}, ["escape"], None),
            # of an A/B the next value is chosen: but auto, which cannot be compared, or the last
            (AB, ["enter"], ChosenValue("compare", "16")),
            ({"lever": SIDES, "now": "left", **AB}, ["enter"], ChosenValue("compare", "right")),
            ({"lever": SIDES, "now": "right", **AB}, ["enter"], ChosenValue("compare", "left")),
            # a value that stands for another one can be set, but not compared
            ({"lever": MODEL, "now": "full"}, ["home", "a", "enter"], ChosenValue("set", "auto")),
        ):
            await one.open(**how)
            await one.press(*keys)
            assert one.answers == [answer], keys


LONG = "10000000"


async def test_an_invalid_answer_shows_why_and_the_dialog_stays():
    valid = "not valid: a whole number from 1 to 1048576 "
    async with asking() as one:
        for keys, why in (
            (["0", "enter"], f"0 is {valid}"),
            (["a"], "it is 8 now"),
            (["8", "a"], "it is 8 now"),
            ([*LONG], f"batch_size = {LONG}▏"),
            ([*LONG, "enter", "a"], f"{LONG} is {valid}"),  # as it was typed
            ([*"1" + 11 * "0", "enter"], f"100000000000 is {valid}"),
            (["9"] * 13, "a number has at most 12 digits"),
        ):
            await one.open()
            await one.press(*keys)
            assert one.says(why)
            assert one.answers == []
        await one.press("enter")
        assert one.answers == []
        await one.open(MODEL, "full")
        await one.press("home", "a")
        assert one.says("auto stands for another value")


async def test_keys_that_arrive_together_answer_once_and_stop_at_the_last_value():
    async with asking() as one:
        for key in ("down", *["enter"] * 5, "a", "escape"):
            one.app.post_message(events.Key(key, {"enter": "\r", "a": "a"}.get(key)))
        await one.press()
        assert one.answers == [ChosenValue("set", "16")]
        await one.open(NAMES, "value-0")
        for _ in range(100):
            one.app.post_message(events.Key("down", None))
        await one.press()
        assert one.says("ערך")
        assert not one.says(" value-0  ")


async def test_a_click_chooses_and_a_second_one_sets_and_the_words_of_the_hint_are_buttons():
    async with asking() as one:
        y = next(y for y, line in enumerate(one.lines()) if "32 " in line)
        for answers in ([], [ChosenValue("set", "32")]):
            await one.pilot.click(offset=(20, y))
            await one.pilot.pause()
            assert one.answers == answers
        await one.open()
        y = next(y for y, line in enumerate(one.lines()) if "esc" in line)
        await one.pilot.click(offset=(one.lines()[y].index("esc") + 1, y))
        await one.pilot.pause()
        assert one.answers == [None]


async def test_it_stands_at_any_size():
    levers = [(BATCH_SIZE, "8"), (NAMES, "value-7"), (MODEL, "full"), (PIPELINED, "off")]
    async with asking() as one:
        for lever, now in levers:
            await one.open(lever, now)
            for size in [(20, 5), (40, 12), (200, 50)]:
                await one.pilot.resize_terminal(*size)
                await one.press("down", "down", "up")
                assert not one.says("failed")
                assert len(one.app.screen.children) == 1
