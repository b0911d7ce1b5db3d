"""The lines to take home, from the levers and from the chooser."""

from msgspec.structs import replace as changed

from gpudash.reference_levers import reference_levers
from gpudash.tui.screens.chooser import Chooser
from gpudash.tui.screens.recipe import TakeHome
from tests.tui import scripts
from tests.tui.driving import showing
from workloads.levers import find
from workloads.take_home import recipe

PRECISION = find(reference_levers("encdec", {}), "precision")


@showing(notifications=True)
async def test_the_lines_of_the_lever_under_the_cursor_are_shown_and_copied(d):
    d.choose("batch_size")
    await d.press("c", shows="+loader = DataLoader(dataset, batch_size=8)")
    await d.press("y")
    assert d.app.clipboard == recipe(d.app.main_screen.levers.chosen.name, "8").code
    (told,) = d.notices()
    assert told.startswith("copied the lines for batch_size=8: ")
    await d.press("escape")
    assert d.app.screen is d.app.main_screen
    d.app.clear_notifications()
    d.choose("compile")
    await d.press("c", "y", shows="PyTorch's default: there is nothing to write.")
    assert d.notices() == ["there is nothing to copy"]


@showing(scripts.training())
async def test_the_scripts_own_line_is_shown_with_the_value_where_it_is_known(
    tmp_path, monkeypatch, d
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("\nloader = DataLoader(data, batch_size=16)\n")
    d.app.control.plan = changed(d.app.control.plan, command=("python", "train.py"))
    d.choose("pin_memory")
    await d.press(
        "c",
        "right",
        shows=(
            "train.py:2 in your script:",
            "-loader = DataLoader(data, batch_size=16)",
            "+loader = DataLoader(data, batch_size=16, pin_memory=True)",
        ),
    )


async def test_the_arrows_and_words_of_the_hint_go_to_the_other_values(d):
    d.choose("precision")
    await d.press("c")
    value = d.app.control.snapshot.settings["precision"]
    for key in ("left", "left", "right", "left", "l", "h"):
        assert f"precision={value}" in d.text()
        marked = recipe("precision", value).marked
        assert all(line.strip() in d.text() for line in marked if line[0] == "+")
        await d.press(key)
        value = PRECISION.step(value, 1 if key in ("right", "l") else -1)
    before = d.text()
    await d.click("next value")
    assert d.text() != before
    await d.click("value before")
    assert d.text() == before
    await d.click("esc closes")
    assert d.app.screen is d.app.main_screen


async def test_the_chooser_shows_the_value_under_its_cursor_and_stays(d):
    d.choose("batch_size")
    await d.press("enter", "1", "2", "c", shows="+loader = DataLoader(dataset, batch_size=12)")
    await d.press("escape")
    assert isinstance(d.app.screen, Chooser)
    await d.click("c code")
    assert isinstance(d.app.screen, TakeHome)


@showing(size=(80, 60))
async def test_it_stands_at_any_size_and_no_line_of_code_is_broken_at_80_columns(d):
    d.choose("pipelined")
    await d.press(
        "c", shows="+loader = DataLoader(dataset, batch_size=batch_size, pin_memory=True)"
    )
    await d.resize(20, 5)
    await d.press("right", "down", "end")
    assert all(len(line) == 20 for line in d.lines())
