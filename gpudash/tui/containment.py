"""A failure of the screen closes what failed and is told in the log; the training goes on.

Textual hands every exception that nobody caught to `App._handle_exception`, which ends the app, and
lets the widget it came from handle no more messages. Neither has a public seam: what is private
here is held by `tests/tui/test_containment.py`.
"""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from textual._context import active_message_pump  # says who has failed
from textual.app import App
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.widget import Widget
from textual.worker import WorkerFailed

from gpudash.format import plain

PATIENCE = 8
"""Failures of the main screen itself without a frame between them, until it is given up: seconds,
as it is painted when something has changed."""


class Contained(MessagePump):
    """Goes on with its next message where one could not be handled."""

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:  # noqa: BLE001  # whatever it is, the training goes on
            self.app._handle_exception(error)  # noqa: SLF001  # Textual's own funnel


class PatientDriver(LinuxDriver):
    """Reads on after bytes that are no UTF-8: old terminals tell so where the mouse is.

    It knows whether the terminal is slower than what is painted.
    """

    @property
    def is_behind(self) -> bool:
        """Whether something waits to be written: some frames more, and who paints would wait."""
        writer = self._writer_thread
        return writer is not None and not writer._queue.empty()  # noqa: SLF001  # nothing public tells

    def run_input_thread(self) -> None:
        """Lose what was read with them."""
        while not self.exit_event.is_set():
            with suppress(UnicodeDecodeError):
                super().run_input_thread()


class PartFailed(Message):
    """A widget could not be brought up to date or painted; it shows that itself."""

    def __init__(self, widget: Widget, error: Exception) -> None:
        super().__init__()
        self.sentence = f"the {name_of(widget)} failed: {reason(error)}"
        self.error = error


class ContainedApp(Contained, App[None]):
    """An app whose main screen and work outlive what fails on the screen."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: dict[tuple[str, int], str] = {}
        """Each place in the code that has failed, and the line the log has of it."""
        self._failures_since_frame = 0
        self._frame_failed = False

    def get_driver_class(self) -> type[Driver]:
        """Return what reads the terminal."""
        found = super().get_driver_class()
        return PatientDriver if found is LinuxDriver else found

    @property
    def is_behind(self) -> bool:
        """Whether the terminal has not taken all that was painted."""
        return isinstance(self._driver, PatientDriver) and self._driver.is_behind

    @property
    def at_work(self) -> bool:
        """Whether there is something that a failure of the screen must not end."""
        raise NotImplementedError  # no ABC: Textual has a metaclass of its own

    def tell(self, line: str) -> None:
        """Show a line in the log."""
        raise NotImplementedError  # no ABC: Textual has a metaclass of its own

    def give_up(self, sentence: str) -> None:
        """Leave in order, with exit code 1: the main screen cannot be painted."""
        raise NotImplementedError  # no ABC: Textual has a metaclass of its own

    def on_part_failed(self, event: PartFailed) -> None:
        """Say so in the log."""
        self._note(event.sentence, event.error)

    @contextmanager
    def contained(self) -> Iterator[None]:
        """Take what fails in here for the main screen's failure, whatever is open above it."""
        try:
            yield
        except Exception as error:
            if not self.at_work:
                raise
            self._note(f"the main screen failed: {reason(error)}", error)

    def _handle_exception(self, error: Exception) -> None:
        if not self.at_work or self._exit:
            super()._handle_exception(error)
            return
        if isinstance(error, WorkerFailed):
            error = cast("Exception", error.error)
        failed, main = self._failed_screen(), self.screen_stack[0]
        if failed is None:
            return
        if failed is not main:
            while failed in self.screen_stack:  # with what was opened above it
                self.pop_screen()
            self._note(f"the open dialog failed and was closed: {reason(error)}", error)
            return
        sentence = f"the main screen failed: {reason(error)}"
        self._note(sentence, error)
        if active_message_pump.get(self) is main:
            self._frame_failed = True
            self._failures_since_frame += 1
            if self._failures_since_frame == PATIENCE:
                self.give_up(sentence)

    def _failed_screen(self) -> Screen[object] | None:
        """Return the screen that failed; None where it has been closed meanwhile.

        What the app itself does, it does for the screen on top: its keys, its palette's commands.
        """
        pump = active_message_pump.get(self)
        if not isinstance(pump, Widget):
            return self.screen
        screens = [node for node in pump.ancestors_with_self if isinstance(node, Screen)]
        return screens[0] if screens and screens[0] in self.screen_stack else None

    def _note(self, sentence: str, error: Exception) -> None:
        """Say so in the log, once for each place that fails."""
        place = place_of(error)
        if place not in self.failures:
            line = f"gpudash: {sentence} ({Path(place[0]).name}:{place[1]})"
            self.failures[place] = f"{line}; the training goes on" if self.at_work else line
            self.tell(self.failures[place])

    def post_display_hook(self) -> None:
        """Note that a frame has been shown, if it has: Textual calls this after a failure too."""
        if not self._frame_failed:
            self._failures_since_frame = 0
        self._frame_failed = False


def reason(error: Exception) -> str:
    """Return what went wrong, in one line."""
    return plain(f"{type(error).__name__}: {error}".partition("\n")[0])


def place_of(error: Exception) -> tuple[str, int]:
    """Return file and line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    return (frames[-1].filename, frames[-1].lineno or 0) if frames else (type(error).__name__, 0)


def name_of(widget: Widget) -> str:
    """Return what a user may call a widget of the main screen: `throughput chart`, `log pane`."""
    kind = re.findall("[A-Z][a-z]*", type(widget).__name__)[-1]
    return kind.lower() if kind.lower() == widget.id else f"{widget.id} {kind.lower()}"
