"""The dashboard over a recording: its own keys, the scrubber, and what it cannot do."""

import msgspec
import pytest

from gpudash.present.wording import verdict_command
from gpudash.protocol.commands import Plan
from gpudash.protocol.session import Playback
from gpudash.tui.arrangement import PanelChoice
from gpudash.tui.panels import View
from tests.tui.comparisons import CONCLUDED
from tests.tui.driving import showing, still
from tests.tui.fake_engine import training
from tests.tui.frames import control_of

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


@showing(SHOWN, player=FakePlayer())
async def test_keys_and_a_click_play_the_recording_and_ask_nothing_of_a_training(d):
    player = d.app.main_screen._player
    for key, call in {
        "space": ("play_or_hold",),
        "left": ("seek", 26.0),
        "right": ("seek", 36.0),
        "less_than_sign": ("faster", -1),
        "greater_than_sign": ("faster", 1),
        "comma": ("seek", 10.0),
        "full_stop": ("seek", 53.0),
        "end": ("seek_end",),
    }.items():
        await d.press(key)
        assert player.calls.pop() == call
    player.position_s = 10.5  # the marker that was just reached is not the one before
    await d.press("comma")
    assert player.calls.pop() == ("seek", 0.0)
    await d.pilot.click("#scrubber", offset=(10, 0))
    await d.settle()
    assert player.calls == [("seek", 0.0)]
    assert len(d.engine.calls) == 1


REPLAYED = View(panels=PanelChoice(scrubber=True))


@pytest.mark.parametrize(
    ("position_s", "later_s"), [(13.0, 50.0), (30.0, 13.0)], ids=["position", "next marker"]
)
def test_a_markers_value_is_shown_whole_or_not_at_all(position_s, later_s):
    markers = ((10.0, "batch_size=1024"), (later_s, "pipelined=on"))
    playback = msgspec.structs.replace(PLAYBACK, position_s=position_s, markers=markers)
    d = still((80, 24), msgspec.structs.replace(SHOWN, playback=playback), REPLAYED)
    line = d.lines()[-3].partition("├")[2].partition("┤")[0]
    assert line.count("┊") == 2
    assert not set("1024") & set(line)


OF_RANKS = {"bucket_cap_mb": "4", "gradient_compression": "none"}


def test_the_levers_that_several_processes_have_are_shown_with_their_values():
    of_ranks = msgspec.structs.replace(SHOWN, settings=SHOWN.settings | OF_RANKS)
    alone, together = (
        {row.lever.name: row.value for row in control_of(one).levers.rows()}
        for one in (SHOWN, of_ranks)
    )
    assert "bucket_cap_mb" not in alone
    assert together.items() >= OF_RANKS.items()
    assert "bucket_cap_mb" in still((200, 60), of_ranks).text()


def test_an_ab_of_several_processes_is_asked_again_with_as_many():
    shown = msgspec.structs.replace(
        CONCLUDED.comparison, settings=CONCLUDED.comparison.settings | {"bucket_cap_mb": "4"}
    )
    command = verdict_command(shown, "encdec", Plan(workload="encdec", settings={}, nproc=2))
    assert "--set bucket_cap_mb=4 --nproc 2" in command


@showing(SHOWN, player=FakePlayer())
async def test_a_log_sent_again_is_not_shown_twice(d):
    d.app.main_screen.open_tab("log")
    d.app.inbox.on_log(["first"])
    await d.until("first")
    d.app.inbox.on_rewind()
    d.app.inbox.on_log(["again"])
    await d.until("again")
    assert "first" not in d.text()
