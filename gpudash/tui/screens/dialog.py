"""The dialogs: each asks one question and answers once; Escape answers None."""

import textwrap
from collections.abc import Iterable
from typing import ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from gpudash.format import plain


def text(content: str, *, classes: str | None = None) -> Static:
    """Return a widget with plain text: no markup, and no control characters but line feeds."""
    shown = "\n".join(map(plain, content.split("\n")))
    return Static(shown, classes=classes, markup=False)


Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer]):
    """A screen above the main one. It answers once; Escape answers None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "cancel", show=False)
    ]

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        """Answer once: a second Enter that arrives together with the first has no effect."""
        return super().dismiss(result) if self.is_active else AwaitComplete()


class AskText(Dialog[str]):
    """Asks for a line of text, such as a file's name; Enter answers."""

    def __init__(self, title: str, value: str, hint: str) -> None:
        super().__init__()
        self._title, self._value, self._hint = title, value, hint

    def compose(self) -> ComposeResult:
        """Yield title, input and hint."""
        with Vertical(classes="dialog"):
            yield text(self._title, classes="dialog-title")
            yield Input(self._value, select_on_focus=True)
            yield text(f"{self._hint}\nenter accepts · esc cancels", classes="dialog-hint")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer with the typed text, unchanged."""
        event.stop()
        self.dismiss(event.value)


ROOM = 58
"""Columns of a list's entry."""
INDENT = 4
"""Columns by which an entry's second line is indented."""


class AskChoice(Dialog[str]):
    """Asks for one of a few names, each with a line of explanation."""

    def __init__(self, title: str, choices: dict[str, str], current: str, hint: str) -> None:
        super().__init__()
        self._title, self._choices, self._current, self._hint = title, choices, current, hint

    def compose(self) -> ComposeResult:
        """Yield title, list and hint."""
        with Vertical(classes="dialog"):
            yield text(self._title, classes="dialog-title")
            names = list(self._choices)
            options = OptionList(
                *(Option(self._prompt(name), id=name) for name in names), markup=False
            )
            options.highlighted = names.index(self._current) if self._current in names else 0
            yield options
            yield text(f"{self._hint}\nenter chooses · esc cancels", classes="dialog-hint")

    def _prompt(self, name: str) -> str:
        mark = "●" if name == self._current else " "
        line = f"{mark} {name} · {self._choices[name]}"
        return textwrap.fill(line, ROOM, subsequent_indent=" " * INDENT)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Answer with the chosen name."""
        event.stop()
        self.dismiss(event.option.id)


class AskKey(Dialog[str]):
    """Asks for one of a few answers, each by its own key or a click.

    Enter does not answer: a held key would, before the question is read.
    """

    def __init__(self, question: str, answers: dict[str, str], escape: str) -> None:
        """`answers` has a line for each key; `escape` is the text about Escape."""
        super().__init__()
        self._question, self._answers, self._escape = question, answers, escape

    def compose(self) -> ComposeResult:
        """Yield the question and the answers, none of them chosen."""
        with Vertical(classes="dialog"):
            yield text(self._question, classes="dialog-title")
            for key, what in self._answers.items():
                yield _Line(key, what)
            yield text(f"esc {self._escape}", classes="dialog-hint")

    def on_key(self, event: events.Key) -> None:
        """Answer with the key, if it is one of the answers'."""
        if event.key in self._answers:
            event.stop()
            self.dismiss(event.key)


class _Line(Static):
    """An answer with its key; a click chooses it."""

    def __init__(self, key: str, what: str) -> None:
        super().__init__(f"{key}  {what}", markup=False)
        self._key = key

    def on_click(self) -> None:
        self.screen.dismiss(self._key)


class Confirm(Dialog[bool]):
    """Asks yes or no; `y`, Enter or a click on yes answer True, everything else False."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n,q", "dismiss(False)", "no", show=False),
        Binding("y", "dismiss(True)", "yes", show=False),
    ]

    def __init__(self, question: str, yes: str, no: str) -> None:
        super().__init__()
        self._question, self._yes, self._no = question, yes, no

    def compose(self) -> ComposeResult:
        """Yield the question and both answers, with `no` highlighted."""
        with Vertical(classes="dialog"):
            yield text(self._question, classes="dialog-title")
            options = OptionList(
                Option(f"n  {self._no}", id="no"), Option(f"y  {self._yes}", id="yes"), markup=False
            )
            options.highlighted = 0
            yield options

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Answer with the chosen option."""
        event.stop()
        self.dismiss(event.option.id == "yes")


class ShowLines(Dialog[None]):
    """Shows some lines; Escape, Enter, `q` and `e` close it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,q,e", "dismiss(None)", "close", show=False)
    ]

    def __init__(self, title: str, lines: Iterable[str]) -> None:
        super().__init__()
        self._title, self._lines = title, lines

    def compose(self) -> ComposeResult:
        """Yield title and lines."""
        with VerticalScroll(classes="dialog wide"):
            yield text(self._title, classes="dialog-title")
            yield text("\n".join(self._lines))
            yield text("esc closes", classes="dialog-hint")
