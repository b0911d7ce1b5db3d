"""Containment: an exception of the screen is logged and closes what failed; nothing else ends.

Textual passes every uncaught exception to `App._handle_exception`, which ends the app, and its
widget then handles no more messages. Neither can be changed by public means:
`tests/tui/test_containment.py` guards the private ones used here.
"""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from textual._context import active_message_pump  # the widget that failed
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
"""Failures of the main screen without a frame between them, after which the dashboard ends. That
takes seconds, as the screen is painted only when something has changed."""


class Contained(MessagePump):
    """A message pump that goes on with the next message after an exception."""

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:  # noqa: BLE001  # no exception may end the training
            self.app._handle_exception(error)  # noqa: SLF001  # as Textual itself does


class PatientDriver(LinuxDriver):
    """A driver that reads on after invalid UTF-8, which old terminals send as mouse positions."""

    @property
    def is_behind(self) -> bool:
        """Whether output waits to be written; after a few more frames, painting would block."""
        writer = self._writer_thread
        return writer is not None and not writer._queue.empty()  # noqa: SLF001  # not public

    def run_input_thread(self) -> None:
        """Read on; what was read together with invalid bytes is lost."""
        while not self.exit_event.is_set():
            with suppress(UnicodeDecodeError):
                super().run_input_thread()


class PartFailed(Message):
    """A widget could not be updated or painted; the widget shows this itself."""

    def __init__(self, widget: Widget, error: Exception) -> None:
        super().__init__()
        self.sentence = f"the {_name_of(widget)} failed: {reason(error)}"
        self.error = error


class ContainedApp(Contained, App[None]):
    """An app whose main screen and training go on after an exception of the screen."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: dict[tuple[str, int], str] = {}
        """The log's line for each place in the code that has failed."""
        self._failures_since_frame = 0
        self._frame_failed = False
        self._has_painted = False

    def get_driver_class(self) -> type[Driver]:
        found = super().get_driver_class()
        return PatientDriver if found is LinuxDriver else found

    @property
    def is_behind(self) -> bool:
        return isinstance(self._driver, PatientDriver) and self._driver.is_behind

    @property
    def at_work(self) -> bool:
        """Whether a training runs; the log then says that it goes on."""
        raise NotImplementedError  # no ABC: Textual has a metaclass of its own

    def tell(self, line: str) -> None:
        raise NotImplementedError  # no ABC: Textual has a metaclass of its own

    def give_up(self, sentence: str) -> None:
        """Quit in order with exit code 1: the main screen cannot be painted."""
        raise NotImplementedError  # no ABC: Textual has a metaclass of its own

    def on_part_failed(self, event: PartFailed) -> None:
        self._note(event.sentence, event.error)

    @contextmanager
    def contained(self) -> Iterator[None]:
        """Treat an exception in the block as the main screen's, even if a dialog is open."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  # no exception may end the training
            self._note(f"the main screen failed: {reason(error)}", error)

    def _handle_exception(self, error: Exception) -> None:
        if not self._has_painted or self._exit:  # without a screen there is nowhere to say it
            super()._handle_exception(error)
            return
        if isinstance(error, WorkerFailed):
            error = cast("Exception", error.error)
        failed, main = self._failed_screen(), self.screen_stack[0]
        if failed is None:
            return
        if failed is not main:
            while failed in self.screen_stack:  # with the screens above it
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
        """None if the screen was closed; a failure of the app itself counts as the top screen's."""
        pump = active_message_pump.get(self)
        if not isinstance(pump, Widget):
            return self.screen
        screens = [node for node in pump.ancestors_with_self if isinstance(node, Screen)]
        return screens[0] if screens and screens[0] in self.screen_stack else None

    def _note(self, sentence: str, error: Exception) -> None:
        """Log a failure, once for each place in the code that fails."""
        place = _place_of(error)
        if place not in self.failures:
            line = f"gpudash: {sentence} ({Path(place[0]).name}:{place[1]})"
            self.failures[place] = f"{line}; the training goes on" if self.at_work else line
            self.tell(self.failures[place])

    def post_display_hook(self) -> None:
        """Reset the count of failures after a frame; Textual calls this after failed ones too."""
        if not self._frame_failed:
            self._failures_since_frame = 0
            self._has_painted = True
        self._frame_failed = False


def reason(error: Exception) -> str:
    return plain(f"{type(error).__name__}: {error}".partition("\n")[0])


def _place_of(error: Exception) -> tuple[str, int]:
    frames = traceback.extract_tb(error.__traceback__)
    return (frames[-1].filename, frames[-1].lineno or 0) if frames else (type(error).__name__, 0)


def _name_of(widget: Widget) -> str:
    """Return a user's name of a main screen's widget: `throughput chart`, `log pane`."""
    kind = re.findall("[A-Z][a-z]*", type(widget).__name__)[-1]
    return kind.lower() if kind.lower() == widget.id else f"{widget.id} {kind.lower()}"
