"""The dashboard's configuration overrides saved preferences, and does not change them."""

import msgspec
import pytest

from gpudash.tui import preferences
from gpudash.tui.keys import (
    ACTIONS,
    KEYS,
    REPLAY_KEYS,
    clash,
    key_named,
    keys_of,
    name_of,
    remapped,
)
from gpudash.tui.preferences import Appearance, Preferences
from gpudash.tui.screens.keys import Help
from tests.tui.comparisons import comparing
from tests.tui.driving import dashboard, showing
from tests.tui.fake_engine import training
from tests.tui.test_replay import SHOWN, FakePlayer

changed = msgspec.structs.replace
REMEMBERED = Preferences(theme="gruvbox", pane="ab")


@pytest.fixture
def remembered(monkeypatch):
    monkeypatch.setattr(preferences, "load", lambda: REMEMBERED)


@showing(None, look=Appearance(theme="nord", pane="log"))
async def test_a_configured_theme_and_tab_come_before_those_remembered_and_do_not_replace_them(
    remembered,
    d,
):
    assert d.app.theme == "nord"
    assert d.app.main_screen.pane.tab == "log"
    assert d.app.remembered() == REMEMBERED
    d.app.theme = "monokai"
    d.app.action_pane("history")
    assert d.app.remembered() == Preferences(theme="monokai", pane="history")


@showing(None)
async def test_the_timeline_is_not_remembered_for_a_run_that_has_none(remembered, d):
    d.app.action_pane("profile")
    assert d.app.main_screen.pane.tab == "profile"
    assert d.app.remembered() == REMEMBERED


@showing(None)
async def test_without_a_configuration_it_is_as_it_was_left(remembered, d):
    assert (d.app.theme, d.app.main_screen.pane.tab) == ("gruvbox", "ab")


async def test_an_action_has_its_configured_keys_and_no_others():
    look = Appearance(
        keys={"pipelining": ("space",), "pause": ("p",), "batch_up": ("f5", "exclamation_mark")}
    )
    async with dashboard(look=look, snapshot=training()) as d:
        await d.press("p")
        assert d.engine.calls_of("pause") == [()]
        await d.press("f5", "exclamation_mark", "plus", "equals_sign")
        assert d.engine.calls_of("change") == [({"batch_size": "16"},), ({"batch_size": "32"},)]
        await d.press("space")
        assert d.engine.calls_of("change")[-1] == ({"pipelined": "off"},)
        assert "p pause" in d.lines()[-1]
        assert "space pipeline" in d.lines()[-1]
        await d.press("question_mark")
        assert isinstance(d.app.screen, Help)
        assert "f5  Batch size up" in d.text()


async def test_sentences_and_buttons_name_the_configured_keys_too():
    keys = {"pause": ("P",), "restart": ("f5",), "compare": ("A",), "try_it": ("X",)}
    async with dashboard((80, 24), look=Appearance(keys=keys), snapshot=training()) as d:
        assert "▌ X  TRY " in d.lines()[3]
        assert "A A/B" in d.lines()[-1]
        await d.show(changed(training(), state="paused"))
        assert "P resumes" in d.lines()[-2]
        await d.show(comparing())
        assert "A ends it" in d.lines()[3]
        await d.show(changed(training(), state="failed"))
        assert "press f5 to restart" in d.lines()[-2]


def test_every_action_has_one_name_of_plain_letters():
    for keys in (KEYS, REPLAY_KEYS):
        names = [name_of(key) for key in keys]
        assert len(names) == len(set(names))
        assert all(name.isidentifier() for name in names)
    assert "leave_now" not in ACTIONS


def test_keys_as_they_are_by_default_do_not_clash_and_a_shared_one_is_named():
    assert clash({}) is None
    assert clash({"pause": ("p",), "pipelining": ("space",)}) is None
    action, sentence = clash({"pause": ("plus",)})
    assert action == "pause"
    assert sentence.startswith("key + is batch_up's")
    assert clash({"faster": ("space",)})[1].startswith("key space is play's")


def test_in_a_replay_what_plays_it_comes_first_as_it_does_by_default():
    assert keys_of({}, replay=True) == REPLAY_KEYS
    keys = {
        name_of(key): key.keys
        for key in keys_of({"zoom": ("Z", "space"), "pause": ("P",)}, replay=True)
    }
    assert (keys["play"], keys["zoom"]) == ("space", "Z")
    assert "pause" not in keys


async def test_a_recording_is_played_with_the_configured_keys():
    look = Appearance(keys={"play": ("p",), "seek_back": ("f5",), "pause": ("P",)})
    async with dashboard(look=look, snapshot=SHOWN, player=FakePlayer()) as d:
        await d.press("p", "f5", "space", "left")
        assert d.app.control.player.calls == [("play_or_hold",), ("seek", 26.0)]
        assert "p hold" in d.lines()[-1]


def test_other_keys_leave_the_rest_of_the_table_as_it_is():
    changed = remapped(KEYS, {"zoom": ("Z", "f5")})
    for before, after in zip(KEYS, changed, strict=True):
        keys = "Z,f5" if name_of(before) == "zoom" else before.keys
        assert after == msgspec.structs.replace(before, keys=keys)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("P", "P"),
        ("+", "plus"),
        (",", "comma"),
        ("!", "exclamation_mark"),
        ("f5", "f5"),
        ("space", "space"),
        ("ctrl+r", "ctrl+r"),
        ("shift+tab", "shift+tab"),
        ("question_mark", "question_mark"),
        ("pgup", "pageup"),
    ],
)
def test_a_key_is_named_as_textual_does_or_as_it_stands_on_it(text, name):
    assert key_named(text) == name
