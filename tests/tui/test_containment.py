"""A failure of the screen closes what failed and is logged; the training goes on."""

import asyncio
import os
import threading
from itertools import count

import msgspec
from textual.drivers._writer_thread import WriterThread
from textual.widgets import OptionList

from gpudash.protocol.session import Playback
from gpudash.tui import bars
from gpudash.tui.containment import PatientDriver
from gpudash.tui.screens.chooser import Chooser
from gpudash.tui.screens.keys import Help
from gpudash.tui.screens.main import MainScreen
from gpudash.tui.widgets.painted import Painted
from tests.tui.driving import Driver, showing
from tests.tui.fake_engine import recording, training

PARTS = (
    "header bar",
    "answer strip",
    "throughput chart",
    "activity",
    "step time",
    "levers panel",
    "pane",
    "status line",
    "footer bar",
)


def broken(*_args, **_kwargs):
    raise KeyError(0)


def said(d: Driver) -> list[str]:
    """Return the log's lines about failures."""
    return [line for line in d.app.main_screen.pane.lines["log"] if line.startswith("gpudash: ")]


async def assert_goes_on(d: Driver, *, said_of: str) -> None:
    """The log has one line of it; keys and snapshots arrive. It may fail again."""
    await d.show(training(moved=50.0))
    (line,) = said(d)
    assert line.startswith(f"gpudash: {said_of} failed")
    assert line.endswith("; the training goes on")
    assert "KeyError: 0" in line
    assert d.app.screen is d.app.main_screen
    before = len(d.engine.calls_of("change"))
    await d.press("p")
    assert len(d.engine.calls_of("change")) == before + 1
    assert "off …" in d.text() or "on …" in d.text()
    d.app.failures.clear()
    d.app.main_screen.pane.lines["log"].clear()


@showing(size=(200, 50), fails=True)
async def test_a_widget_that_cannot_paint_says_so_in_its_place_until_it_can(monkeypatch, d):
    for part in PARTS:
        widget = d.app.main_screen.query_one(f"#{part.split()[0]}", Painted)
        with monkeypatch.context() as patch:
            patch.setattr(widget, "rows", broken)
            widget.repaint()
            await d.show(training(moved=1.0), shows=f"the {part} failed: KeyError: 0")
        widget.repaint()
        painted = map(widget.render_line, range(widget.size.height))
        assert not any(f"the {part} failed" in strip.text for strip in painted)
        await assert_goes_on(d, said_of=f"the {part}")


@showing(fails=True)
async def test_what_cannot_be_computed_costs_its_own_widget_alone(monkeypatch, d):
    with monkeypatch.context() as patch:
        patch.setattr(bars, "header", broken)
        for tick in range(8):
            await d.show(training(ticks=60 + tick))
        assert d.lines()[0].strip() == "the header bar failed: KeyError: 0"
        assert d.app.main_screen.query_one("#status").rows(100, 1) is not None
    await assert_goes_on(d, said_of="the header bar")
    assert "KeyError" not in d.lines()[0]


@showing(fails=True)
async def test_actions_callbacks_and_handlers_that_fail_are_logged_once(monkeypatch, d):
    async def fail():
        broken()

    with monkeypatch.context() as patch:
        patch.setattr(d.engine, "new_row", broken)
        await d.press("n", "n", "n")
    await assert_goes_on(d, said_of="the main screen")
    later = (d.app.call_later, d.app.call_after_refresh, d.app.run_worker)
    for ask in (lambda fail: d.app.set_timer(0.001, fail), *later):
        ask(fail)
        while not said(d):
            await d.pilot.pause(0.01)
        await assert_goes_on(d, said_of="the main screen")
    with monkeypatch.context() as patch:
        patch.setattr(MainScreen, "on_resize", broken)
        await d.pilot.resize_terminal(130, 42)
        await d.settle()
    await assert_goes_on(d, said_of="the main screen")


@showing(fails=True)
async def test_a_snapshot_that_cannot_be_taken_leaves_an_open_dialog_alone(monkeypatch, d):
    await d.press("down", "enter")
    with monkeypatch.context() as patch:
        patch.setattr(d.app.control, "take", broken)
        await d.show(training(moved=1.0))
    assert isinstance(d.app.screen, Chooser)
    await d.press("escape")
    await assert_goes_on(d, said_of="the main screen")


@showing(fails=True)
async def test_a_dialog_that_fails_is_closed_and_a_failing_answer_is_logged(monkeypatch, d):
    for patched, name, keys, said_of in (
        (OptionList, "action_cursor_down", ("w", "down"), "the open dialog"),
        (Help, "compose", ("question_mark",), "the open dialog"),
        (d.engine, "restart", ("w", "down", "enter"), "the main screen"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(patched, name, broken)
            await d.press(*keys)
        await assert_goes_on(d, said_of=said_of)


async def test_a_palette_that_lost_its_room_turns_no_page(d):
    await d.press("ctrl+p")
    await d.until("Prove · ")
    await d.pilot.resize_terminal(30, 3)
    await d.press("pageup")
    await d.pilot.resize_terminal(120, 40)
    await d.settle()
    assert "Prove · " in d.text()


async def test_a_page_turned_in_a_palette_that_is_just_being_opened_is_no_failure(d):
    for state, key in (("training", "pagedown"), ("finished", "pageup")):
        await d.show(msgspec.structs.replace(training(), state=state))
        await d.press_together("ctrl+p", key)
        await d.until("Prove · ")
        await d.press("escape")


@showing(fails=True)
async def test_without_a_training_a_failure_is_logged_all_the_same(monkeypatch, d):
    monkeypatch.setattr(d.app, "action_help", broken)
    for playback in (None, Playback(name="run.csv")):
        d.app.failures.clear()
        await d.show(msgspec.structs.replace(training(), state="finished", playback=playback))
        await d.press("question_mark")
        line = said(d)[-1]
        assert line.startswith("gpudash: the main screen failed: KeyError: 0")
        assert not line.endswith("goes on")
        await d.press("4", shows="⁴step, ms")


RECORDED = msgspec.structs.replace(training(), recording=recording())


@showing(RECORDED, fails=True)
async def test_a_main_screen_that_can_never_be_painted_is_left_in_order(monkeypatch, d):
    monkeypatch.setattr(d.app.main_screen._compositor, "update_widgets", broken)
    for tick in count():
        if d.has_left:
            break
        d.engine.publish(msgspec.structs.replace(RECORDED, elapsed_s=float(tick)))
        await asyncio.sleep(0.01)  # not the pilot's: it waits until the app is idle
    assert d.engine.calls_of("stop_recording") == [()]
    assert d.app.return_code == 1
    (line,) = d.app.failures.values()
    assert line.startswith("gpudash: the main screen failed: KeyError: 0")


def test_a_terminal_is_behind_until_it_has_taken_what_was_painted():
    end, begin = os.pipe()
    driver = object.__new__(PatientDriver)
    driver._writer_thread = None
    assert not driver.is_behind
    with os.fdopen(begin, "w") as file:
        driver._writer_thread = WriterThread(file)
        driver._writer_thread.start()
        frame = "x" * (1 << 17)  # more than a pipe takes
        driver.write(frame)
        driver.write(frame)
        assert driver.is_behind
        left = 2 * len(frame)
        while left:
            left -= len(os.read(end, left))
        driver._writer_thread.stop()
        assert not driver.is_behind
    os.close(end)


def test_bytes_that_are_no_text_do_not_end_the_reading_of_the_terminal():
    keys, (end, begin) = [], os.pipe()
    driver = object.__new__(PatientDriver)
    driver.fileno, driver.exit_event, driver._debug = end, threading.Event(), False

    def take(event):
        keys.append(event.key)
        driver.exit_event.set()

    driver.process_message = take
    reading = threading.Thread(target=driver.run_input_thread, daemon=True)
    os.write(begin, b"\x1b[M \xe0\xff")  # as X10 tells of column 192
    reading.start()
    while reading.is_alive():
        os.write(begin, b"q")
        reading.join(0.01)
    assert set(keys) == {"q"}
    os.close(begin)
    os.close(end)
