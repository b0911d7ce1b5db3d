"""Requests that the run's source does not accept are grey and say why; all others work."""

import pytest
from msgspec.structs import replace as changed

from gpudash.availability import WHY_NOT, Requests
from gpudash.present.cells import fitting
from gpudash.tui.bars import footer
from tests.tui.comparisons import comparing
from tests.tui.driving import showing
from tests.tui.fake_engine import training

WATCHED = changed(training(), can=())
"""A run that may be watched and no more."""


ABLE = changed(training(), can=(*training().can, "profile", "memory"))
FIXED, BUSY = " fixed ", "an A/B is running; a ends it"


@pytest.mark.parametrize(
    ("snapshot", "dim", "works", "said", "why"),
    [
        (WATCHED, {"pause": "space"}, {"help": "?"}, FIXED, WHY_NOT["pause"]),
        (ABLE, {}, {"pause": "space", "help": "?"}, FIXED, ""),
        (changed(comparing(), can=ABLE.can),
         {"pipelining": "p", "batch(1)": "+", "undo": "u", "timeline": "t"},
         {"compare": "a", "pause": "space"}, BUSY, BUSY),
    ],
    ids=["watched", "able", "during an A/B"],
)  # fmt: skip
@showing(None)
async def test_footer_levers_and_palette_show_what_is_not_possible(
    snapshot, dim, works, said, why, d
):
    await d.show(snapshot)
    footer = d.footer()
    assert {footer[action][key] for action, key in dim.items()} <= {"dim"}
    assert {footer[action][key] for action, key in works.items()} == {"key"}
    assert (said in d.text()) == bool(why)
    told = {command.title: command.help for command in d.app.get_system_commands(d.app.screen)}
    refusals = {*WHY_NOT.values(), BUSY} & {*told.values()}
    assert (why in refusals) if why else (not refusals)
    assert ("Levers · batch_size=16" in told) == (not why)


@pytest.mark.parametrize(
    ("snapshot", "requests", "action", "ink", "rank"),
    [
        (training(), Requests(), "undo", "key", 0),
        (training(), Requests(edits=frozenset()), "undo", "dim", 5),
        (training(), Requests(proposes=False), "try_it", "dim", 1),
        (training(), Requests(pipelines=False), "pipelining", "dim", 9),
        (changed(training(), state="paused"), Requests(), "compare", "dim", 1),
        (WATCHED, Requests(), "compare", "dim", 9),
        (training(), Requests(comparing=True), "pipelining", "dim", 9),
        (changed(training(), state="finished"), Requests(), "new_row", "dim", 9),
    ],
)
def test_a_key_that_is_refused_for_the_moment_keeps_its_place_and_others_go_first(
    snapshot, requests, action, ink, rank
):
    (button,) = (one for one in footer(snapshot, requests=requests) if one.action == action)
    assert (button.parts[0][1], button.rank) == (ink, rank)


def test_80_columns_have_room_for_the_keys_that_tell_why():
    able = changed(training(), can=("blocks", "levers", "pause", "profile"))
    shown = fitting(footer(able, focus="levers", requests=Requests(edits=frozenset())), 78)
    assert {"why", "timeline", "try_it", "help", "command_palette", "leave"} <= {
        cell.action for cell in shown
    }


@pytest.mark.parametrize(("state", "newest"), [("training", "live"), ("finished", "newest")])
def test_charts_of_an_ended_training_do_not_go_live(state, newest):
    shown = footer(changed(training(), state=state), focus="throughput")
    assert [one.parts[1][0] for one in shown if one.action == "screen.live"] == [f" {newest}"]
