"""What follows from a verdict: its notices, and the actions of its keys."""

import pytest
from msgspec.structs import replace as changed

from gpudash.compare.ab import Question
from gpudash.compare.starts import of_one_start
from tests.tui.comparisons import CONCLUDED, VERDICT, compared, comparing
from tests.tui.driving import showing
from tests.tui.fake_engine import settings, training

SIZES = [(200, 50), (120, 40), (110, 34), (80, 24), (60, 16)]


@pytest.fixture
async def d(d):
    """The dashboard after an A/B that was begun with its key, at its verdict."""
    d.choose("pipelined")
    await d.press("a")
    await d.show(CONCLUDED)
    d.engine.calls.clear()
    return d


async def test_a_verdict_is_said_once(d):
    await d.show(changed(CONCLUDED, notice=VERDICT))
    assert d.text().count(VERDICT) == 1


async def test_a_verdict_offers_both_values_and_a_key_sets_one(d):
    offer = {"off": "  ⏎ sets off  ", "on": "  o back to on  "}
    assert all(offered in d.lines()[-1] for offered in ("m more pairs", "S new starts", "Y card"))
    for key, value, other in (("enter", "off", "on"), ("o", "on", "off")):
        active = changed(CONCLUDED, settings=settings(pipelined=other))
        await d.show(active)
        assert offer[value] in d.lines()[-1]
        assert offer[other] not in d.lines()[-1]  # it is set
        await d.press(key)
        assert d.notices()[0].startswith(f"pipelined={value} from the next step on")
        await d.press(key)  # the second one does nothing else
        assert d.engine.calls == [("change", {"pipelined": value})]
        (notice,) = d.notices()  # one at a time, or they would hide the result
        assert notice.startswith(f"pipelined stays {value}")
        await d.show(changed(active, pending={"pipelined": value}), shows=offer[other])
        d.engine.calls.clear()


@showing(notifications=True)
async def test_notices_are_above_the_pane_and_hide_nothing_of_the_result(d):
    for size in SIZES:
        await d.resize(*size)
        pane = d.app.main_screen.pane.region
        before = d.lines()[pane.y : pane.bottom]
        await d.press("o")
        assert "pipelined stays on" in "".join(d.lines()[: pane.y])
        assert d.lines()[pane.y : pane.bottom] == before
        d.app.clear_notifications()
    await d.press("z", "y")  # there is nothing above a pane that has all of the room
    assert f"copied: {VERDICT[:12]}" in d.text()


SLOWER = "pipelined=off is 6.3 % slower [6.8, 5.9], 40 pairs, control passed"


async def test_enter_says_that_it_sets_the_value_that_was_proven_slower(d):
    rates = {"low": -0.068, "change": -0.063, "high": -0.059}
    for size in [(200, 50), (120, 40), (80, 24)]:
        await d.resize(*size)
        for how, offered in (
            ({}, "⏎ sets off, slower  "),
            ({"check_passed": False}, "⏎ sets off  "),  # not proven
        ):
            shown = compared(40, verdict=SLOWER, **rates, **how)
            await d.show(changed(training(), comparison=shown), shows=offered)


async def test_c_shows_the_lines_of_what_the_a_b_was_about_and_else_of_the_levers_cursor(d):
    verdict = compared(40, lever="batch_size", a="8", b="16", verdict=VERDICT)
    later = changed(CONCLUDED, comparison=verdict, settings=settings(batch_size="32"))
    await d.show(changed(CONCLUDED, settings=settings(pipelined="on")))
    await d.press("enter")
    assert "c shows the lines" in d.notices()[-1]
    assert "c code" in d.lines()[-1]
    kept = changed(CONCLUDED, settings=settings(pipelined="off"))
    for snapshot, keys, lever, shown in (
        (kept, ("c",), "batch_size", "pipelined=off"),  # wherever the levers' cursor is
        (comparing(), ("c",), "pipelined", "pipelined=off"),  # the value under test
        (CONCLUDED, ("c",), "pipelined", "pipelined=off"),  # that is not kept
        (later, ("c",), "pipelined", "batch_size=32"),  # another one was set afterwards
        (CONCLUDED, ("1", "c"), "pipelined", "pipelined=off"),
        (CONCLUDED, ("c",), "batch_size", "batch_size=8"),
    ):
        await d.show(snapshot)
        d.choose(lever)
        await d.press(*keys, shows=f"{shown} · y copies")
        await d.press("escape")


async def test_enter_ends_an_a_b_that_is_sure(d):
    await d.show(changed(comparing(9), comparison=compared(9, is_sure=True)))
    assert "⏎ sure: ends it" in d.lines()[-1]
    assert "sure: pipelined=off +6.0 %" in d.text()
    await d.press("enter")
    assert d.engine.calls_of("end_comparison") == [()]


SHORT = "; cores were short: the training waited for one 48 % of the time"


async def test_a_verdict_says_so_where_cores_were_short_or_it_is_of_one_start_alone(d):
    of_a_start = compared(40, verdict=VERDICT + of_one_start(0.97), host_ms=(3.5, 3.2))
    for size in [(80, 24), (120, 40)]:
        await d.resize(*size)
        for shown in (compared(40, verdict=VERDICT + SHORT), of_a_start):
            await d.show(changed(training(), comparison=shown))
            pane = d.app.main_screen.pane.region
            lines = [line.strip() for line in d.lines()[pane.y + 1 : pane.bottom]]
            assert shown.verdict in " ".join(lines)


async def test_keys_of_a_verdict_copy_it_and_ask_for_more_pairs(d):
    await d.press("S")
    assert d.app.clipboard == "gpudash ab encdec --lever pipelined=on,off --starts 4"
    assert d.notices() == [f"copied, for when nothing else trains here: {d.app.clipboard}"]
    await d.press("y")
    assert d.app.clipboard.splitlines()[0] == f"{VERDICT}; losses not compared"
    assert "encdec on NVIDIA H200" in d.app.clipboard
    assert d.engine.calls == []  # two trainings on one GPU would disturb each other
    await d.press("m")
    question = Question(lever="pipelined", a="on", b="off", pairs=80)
    assert d.engine.calls == [("compare", question, True)]
