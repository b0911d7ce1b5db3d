"""The dashboard over a recording: its own keys, the scrubber, and what it cannot do."""

import msgspec
import pytest

from gpudash.protocol import Playback
from gpudash.tui.keys import RECORDED
from tests.tui.driving import dashboard
from tests.tui.fake_engine import training

PLAYBACK = Playback(
    name="run.csv", position_s=31.0, length_s=53.0, speed=4.0, markers=((10.0, "pipelined=on"),)
)
SHOWN = msgspec.structs.replace(training(), can=(), playback=PLAYBACK)


class Hand:
    """A player that remembers what it was told."""

    def __init__(self):
        self.position_s = 31.0
        self.told = []

    def __getattr__(self, name):
        return lambda *arguments: self.told.append((name, *arguments))


@pytest.mark.parametrize(
    ("key", "told"),
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
async def test_a_key_plays_the_recording_and_asks_nothing_of_a_training(key, told):
    async with dashboard(snapshot=SHOWN, player=Hand()) as d:
        calls = len(d.engine.calls)
        await d.press(key)
        assert d.app.control.player.told == [told]
        assert len(d.engine.calls) == calls


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 40), (200, 50)])
async def test_header_and_scrubber_say_where_the_recording_stands(size):
    async with dashboard(size, snapshot=SHOWN, player=Hand()) as d:
        assert "replay run.csv  0:00:31 of 0:00:53  ×4" in d.lines()[0]
        scrubber = d.lines()[-3]
        assert scrubber.startswith(" 0:00:00 ├")
        assert 0 < scrubber.index("┊on") < scrubber.index("●")


async def test_a_click_on_the_scrubber_goes_there():
    async with dashboard((80, 24), snapshot=SHOWN, player=Hand()) as d:
        await d.pilot.click("#scrubber", offset=(10, 0))
        await d.settle()
        assert d.app.control.player.told == [("seek", 0.0)]


async def test_what_a_recording_cannot_do_says_so():
    async with dashboard(snapshot=SHOWN, player=Hand()) as d:
        await d.press("p", "r")
        assert d.notices() == [RECORDED] * 2


async def test_a_log_that_is_told_again_is_not_shown_twice():
    async with dashboard(snapshot=SHOWN, player=Hand()) as d:
        d.app.inbox.on_log(["first"])
        await d.until("first")
        d.app.inbox.on_rewind()
        d.app.inbox.on_log(["again"])
        await d.until("again")
        assert "first" not in d.text()
