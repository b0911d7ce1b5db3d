"""With --ascii there is no Unicode on the screen, and the layout is the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpudash.cli.main import main, parse
from gpudash.format import as_ascii
from gpudash.tui.widgets import panel
from gpudash.tui.widgets.painted import in_place
from tests.tui.driving import showing


@given(st.text())
def test_text_is_ascii_and_as_wide_as_it_was(text):
    assert as_ascii(text).isascii()
    assert in_place(text).isascii()
    assert cell_len(in_place(text)) == cell_len(text)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("1.16× – −3 % 58 µs ¹levers…", "1.16x - -3 % 58 us 1levers~"),
        ("▁▃▄▅▆▇█", ".:-=+*#"),
        ("⠀⢀⣤⣿", " .:*"),
        ("é 訓 ع", "e ?  ?"),
    ],
)
def test_numbers_keep_their_meaning_columns_their_height_and_letters_their_shape(text, printed):
    assert as_ascii(text) == printed


def test_focus_is_told_apart():
    assert not {*map(as_ascii, panel.THIN)} & {*map(as_ascii, panel.HEAVY)}


@showing(ascii_only=True, size=(120, 100))
async def test_nothing_on_the_screen_is_unicode_and_no_key_is_named_as_another_one(d):
    for keys, named in (
        ((), "enter values"),
        (("question_mark",), "down  Next lever, row or line"),
        (("escape", "ctrl+p"), ""),
    ):
        await d.press(*keys)
        assert any(line.strip() for line in d.lines())
        assert d.text().isascii()
        assert named in d.text()
        assert "v  Next lever" not in d.text()
        assert "E  Choose" not in d.text()


@pytest.mark.parametrize(("encoding", "expected"), [("UTF-8", False), ("ANSI_X3.4-1968", True)])
def test_a_locale_without_unicode_turns_it_on(monkeypatch, encoding, expected):
    monkeypatch.setattr("locale.getencoding", lambda: encoding)
    for verb in ([], ["list"]):
        assert parse(verb)[1].ascii is expected
        assert parse([*verb, "--ascii"])[1].ascii


def test_what_is_printed_is_ascii_too(capsys):
    assert main(["list", "--ascii"]) == 0
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert "256x256" in printed
