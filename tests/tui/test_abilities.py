"""Requests that the run's source does not accept are grey and say why; all others work."""

import msgspec
import pytest

from gpudash.present.cells import fitting
from gpudash.tui.availability import WHY_NOT, Requests
from gpudash.tui.bars import footer
from tests.tui.driving import showing
from tests.tui.fake_engine import training

changed = msgspec.structs.replace
WATCHED = changed(training(), can=())
"""A run that may be watched and no more."""


@showing(WATCHED)
async def test_footer_levers_and_palette_show_what_is_not_possible(d):
    footer = d.footer()
    assert footer["pause"]["space"] == "dim"
    assert footer["help"]["?"] == "key"
    assert "read only" in d.text()
    told = {command.title: command.help for command in d.app.get_system_commands(d.app.screen)}
    assert WHY_NOT["pause"] in told.values()
    assert not any(title.startswith("Levers") for title in told)
    await d.show(changed(training(), can=(*training().can, "profile", "memory")))
    footer = d.footer()
    assert footer["pause"]["space"] == "key"
    assert "read only" not in d.text()
    told = {command.title: command.help for command in d.app.get_system_commands(d.app.screen)}
    assert not set(WHY_NOT.values()) & set(told.values())
    assert "Levers · batch_size=16" in told


def test_the_key_of_the_proposal_is_grey_without_a_proposal():
    buttons = {one: footer(training(), requests=Requests(proposes=one)) for one in (True, False)}
    assert len({tuple(cell.rank for cell in cells) for cells in buttons.values()}) == 1
    for proposes, ink in ((True, "key"), (False, "dim")):
        (button,) = (cell for cell in buttons[proposes] if cell.action == "try_it")
        assert button.parts[0] == ("x", ink)


def test_undo_is_grey_without_a_change():
    for edits, ink, rank in ((frozenset({"undo"}), "key", 0), (frozenset(), "dim", 5)):
        buttons = footer(training(), requests=Requests(edits=edits))
        (button,) = (cell for cell in buttons if cell.action == "undo")
        assert (button.parts[0], button.rank) == (("u", ink), rank)


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
