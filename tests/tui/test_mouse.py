"""Everything that the screen says about keys can be done with the mouse too."""

import msgspec

from tests.tui.fake_engine import settings, training

WIDTHS = (80, 120, 200)


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
