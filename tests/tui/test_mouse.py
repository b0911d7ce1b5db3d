"""Everything that the screen says about keys can be done with the mouse too."""

import msgspec
import pytest

from gpudash.availability import Requests
from gpudash.present.cells import fitting
from gpudash.tui.bars import footer
from gpudash.tui.keys import KEYS, REPLAY_KEYS, TIMELINE_KEYS
from tests.tui import scenes, scripts
from tests.tui.fake_engine import settings, training

WIDTHS = (80, 120, 200)


def buttons(width, snapshot, keys, **options):
    """The actions that a click in the footer runs."""
    cells = fitting(footer(snapshot, keys, **options), width - 2)
    return {cell.action for cell in cells}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    ("scene", "keys"),
    [
        (scenes.running, KEYS),
        (scenes.comparing, KEYS),
        (scenes.failed, KEYS),
        (scripts.training, KEYS),
        (scripts.ended, KEYS),
        (scenes.replayed, REPLAY_KEYS),
        (scenes.running, TIMELINE_KEYS),
    ],
)
def test_the_menu_has_every_action_and_is_always_in_the_footer(width, scene, keys):
    snapshot = scene()
    requests = Requests(comparing=scene is scenes.comparing)
    for focus in ("levers", "throughput", "pane", "ab"):
        shown = buttons(width, snapshot, keys, requests=requests, focus=focus)
        assert "command_palette" in shown
        assert shown & {"help", "screen.help"}


async def test_a_change_can_be_undone_with_the_mouse_and_what_a_hint_says_of_escape_be_done(d):
    off = msgspec.structs.replace(training(), settings=settings(pipelined="off"))
    ways = {"question_mark": "closes", "e": "closes", "slash": "cancels", "w": "cancels"}
    for key, does in ways.items():
        await d.press(key)
        assert d.app.screen is not d.app.main_screen
        await d.click(f"esc {does}")
        assert d.app.screen is d.app.main_screen
    await d.press("p")
    for width in WIDTHS:
        await d.resize(width, 40)
        await d.show(off, last_command=1)
        assert "u undo" in d.lines()[-1]
    await d.click("u undo")
    assert d.engine.calls_of("change")[-1] == ({"pipelined": "on"},)
