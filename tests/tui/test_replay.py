"""The dashboard over a recording: its own keys, the scrubber, and what it cannot do."""

import re

import msgspec
import pytest

from gpudash.format import minutes
from gpudash.handout.wording import verdict_command
from gpudash.protocol.commands import Plan
from gpudash.protocol.session import Playback
from gpudash.tui.keys import INSTEAD, RECORDED
from tests.tui.comparisons import CONCLUDED, VERDICT, comparing
from tests.tui.driving import dashboard
from tests.tui.fake_engine import training

PLAYBACK = Playback(
    name="run.csv", position_s=31.0, length_s=53.0, speed=4.0, markers=((10.0, "pipelined=on"),)
)
SHOWN = msgspec.structs.replace(training(), can=(), playback=PLAYBACK)


class FakePlayer:
    """A player that records its calls."""

    def __init__(self):
        self.position_s = 31.0
        self.calls = []

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))


@pytest.mark.parametrize(
    ("key", "call"),
    {
        "space": ("play_or_hold",),
        "left": ("seek", 26.0),
        "right": ("seek", 36.0),
        "less_than_sign": ("faster", -1),
        "greater_than_sign": ("faster", 1),
        "comma": ("seek", 10.0),
        "full_stop": ("seek", 53.0),
        "end": ("seek_end",),
    }.items(),
)
async def test_a_key_plays_the_recording_and_asks_nothing_of_a_training(key, call):
    async with dashboard(snapshot=SHOWN, player=FakePlayer()) as d:
        calls = len(d.engine.calls)
        await d.press(key)
        assert d.app.control.player.calls == [call]
        assert len(d.engine.calls) == calls


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 40), (200, 50)])
async def test_header_and_scrubber_say_where_the_recording_stands(size):
    async with dashboard(size, snapshot=SHOWN, player=FakePlayer()) as d:
        assert "replay run.csv  0:00:31 of 0:00:53  ×4" in d.lines()[0]
        scrubber = d.lines()[-3]
        assert scrubber.startswith(" 0:00:00 ├")
        assert 0 < scrubber.index("┊on") < scrubber.index("●")


@pytest.mark.parametrize(
    ("position_s", "later_s"), [(13.0, 50.0), (30.0, 13.0)], ids=["position", "next marker"]
)
async def test_a_markers_value_is_shown_whole_or_not_at_all(position_s, later_s):
    markers = ((10.0, "batch_size=1024"), (later_s, "pipelined=on"))
    playback = msgspec.structs.replace(PLAYBACK, position_s=position_s, markers=markers)
    shown = msgspec.structs.replace(SHOWN, playback=playback)
    async with dashboard((80, 24), snapshot=shown, player=FakePlayer()) as d:
        line = d.lines()[-3].partition("├")[2].partition("┤")[0]
        assert line.count("┊") == 2
        assert not set("1024") & set(line)


async def test_a_click_on_the_scrubber_goes_there():
    async with dashboard((80, 24), snapshot=SHOWN, player=FakePlayer()) as d:
        await d.pilot.click("#scrubber", offset=(10, 0))
        await d.settle()
        assert d.app.control.player.calls == [("seek", 0.0)]


REFUSED = ("p", "plus", "r", "R", "w", "u", "a", "x", "o", "m", "enter")
"""Keys that ask something of a training."""


@pytest.mark.parametrize("key", REFUSED)
async def test_a_key_that_a_recording_cannot_obey_says_so_and_requests_nothing(key):
    judged = msgspec.structs.replace(
        CONCLUDED, can=(), playback=PLAYBACK, verdicts=(CONCLUDED.comparison,)
    )
    async with dashboard(snapshot=judged, player=FakePlayer()) as d:
        if key in "om":
            d.app.main_screen.open_tab("ab")
        calls = len(d.engine.calls)
        await d.press(key)
        assert d.notices() == [f"{RECORDED}; {INSTEAD}"]
        assert len(d.engine.calls) == calls
        assert d.app.screen is d.app.main_screen


@pytest.mark.parametrize("tab", ["history", "ab"])
async def test_enter_in_the_pane_of_a_recording_sets_nothing(tab):
    judged = msgspec.structs.replace(CONCLUDED, can=(), playback=PLAYBACK)
    async with dashboard(snapshot=judged, player=FakePlayer()) as d:
        d.app.main_screen.open_tab(tab)
        await d.press("enter")
        assert d.notices() == [f"{RECORDED}; {INSTEAD}"]
        assert d.engine.calls_of("change") == []


async def test_what_a_recording_cannot_do_is_grey_and_its_levers_are_read_only():
    async with dashboard(size=(200, 50), snapshot=SHOWN, player=FakePlayer()) as d:
        footer = d.footer()
        assert footer["compare"]["a"] == "dim"
        assert footer["screen.play"]["space"] == "key"
        levers = d.app.main_screen.levers.region
        assert RECORDED in d.lines()[levers.y][levers.x : levers.right]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_an_ab_of_a_recording_is_shown_with_its_verdict_and_can_be_copied(size):
    running = msgspec.structs.replace(comparing(9), can=(), playback=PLAYBACK)
    async with dashboard(size, snapshot=running, player=FakePlayer()) as d:
        d.app.main_screen.open_tab("ab")
        await d.settle()
        assert "so far pipelined=off +6.0 %" in d.text()
        await d.show(msgspec.structs.replace(CONCLUDED, can=(), playback=PLAYBACK))
        assert VERDICT in d.text()
        assert "sets off" not in d.text()
        await d.press("y")
        assert d.app.clipboard.startswith(VERDICT)
        assert "gpudash ab encdec --lever pipelined=on,off" in d.app.clipboard


OF_RANKS = {"bucket_cap_mb": "4", "gradient_compression": "none"}


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_the_levers_that_several_processes_have_are_shown_with_their_values(size):
    settings = SHOWN.settings | OF_RANKS
    async with dashboard(size, snapshot=SHOWN, player=FakePlayer()) as d:
        assert "bucket_cap_mb" not in {row.lever.name for row in d.app.control.levers.rows()}
        await d.show(msgspec.structs.replace(SHOWN, settings=settings))
        shown = {row.lever.name: row.value for row in d.app.control.levers.rows()}
        assert shown["bucket_cap_mb"] == "4"
        assert shown["gradient_compression"] == "none"
        await d.choose("bucket_cap_mb")
        assert re.search(r"bucket_cap_mb +\[4\] ", d.text())


def test_an_ab_of_several_processes_is_asked_again_with_as_many():
    shown = msgspec.structs.replace(
        CONCLUDED.comparison, settings=CONCLUDED.comparison.settings | {"bucket_cap_mb": "4"}
    )
    command = verdict_command(shown, "encdec", Plan(workload="encdec", settings={}, nproc=2))
    assert "--set bucket_cap_mb=4 --nproc 2" in command


async def test_nothing_of_a_recording_is_called_live_and_no_value_is_offered():
    async with dashboard((200, 50), snapshot=SHOWN, player=FakePlayer()) as d:
        newest = f" to {minutes(SHOWN.series.at_s[-1])} "
        assert (d.text().count(newest), "live" in d.text()) == (1, False)
        (values,) = (
            one for one in d.app.main_screen.query_one("#footer").cells if "values" in str(one)
        )
        assert values.parts[0] == ("⏎", "dim")
        d.app.main_screen.action_freeze()
        await d.settle()
        assert "f newest" in d.text()


async def test_a_running_ab_of_a_recording_does_not_offer_to_end_it():
    running = msgspec.structs.replace(comparing(9), can=(), playback=PLAYBACK)
    async with dashboard(snapshot=running, player=FakePlayer()) as d:
        d.app.main_screen.open_tab("ab")
        await d.settle()
        assert "a ends it" not in d.text()
        await d.press("a")
        assert d.notices() == [f"{RECORDED}; {INSTEAD}"]
        assert d.engine.calls_of("end_comparison") == []


PARTS = ("throughput", "activity", "step", "levers", "pane")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
@pytest.mark.parametrize("tab", ["history", "ab"])
async def test_a_replay_shows_what_was_on_the_screen_live(size, tab):
    """It has no levers to try or to change, and a row less: that of the scrubber."""
    width, height = size
    async with dashboard(size, snapshot=CONCLUDED) as d:
        d.app.main_screen.open_tab(tab)
        await d.settle()
        shown = d.app.main_screen.headline
        live = {name: figures(d, name) for name in PARTS}
    known = {"answer": shown.answer, "playback": PLAYBACK}
    recorded = msgspec.structs.replace(CONCLUDED, can=(), **known)
    async with dashboard((width, height + 1), snapshot=recorded, player=FakePlayer()) as d:
        d.app.main_screen.open_tab(tab)
        await d.settle()
        for name in PARTS:
            assert figures(d, name) == live[name], name
        assert d.app.main_screen.headline == msgspec.structs.replace(shown, tries=())


def figures(d, name):
    """What stands inside a panel, but what a lever's change would cost; nothing out of sight."""
    panel = d.app.main_screen.query_one(f"#{name}")
    if not d.app.screen.can_view_entire(panel):
        return []
    region = panel.region
    inside = d.lines()[region.y + 1 : region.bottom]
    lines = [line[region.x : region.right].rstrip() for line in inside]
    offered = f"fused_optimizer[:,]|{RECORDED}|no proof|y copy"
    return [line for line in lines if not re.search(offered, line)]


async def test_a_log_sent_again_is_not_shown_twice():
    async with dashboard(snapshot=SHOWN, player=FakePlayer()) as d:
        d.app.main_screen.open_tab("log")
        d.app.inbox.on_log(["first"])
        await d.until("first")
        d.app.inbox.on_rewind()
        d.app.inbox.on_log(["again"])
        await d.until("again")
        assert "first" not in d.text()
