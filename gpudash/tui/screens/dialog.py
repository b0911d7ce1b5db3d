"""The dialogs: each asks one question and answers once; Escape answers None."""

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from textual import events
from textual.app import App, ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.style import Style
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from gpudash.format import plain


def text(content: str, *, classes: str | None = None) -> Static:
    """Return a widget with plain text: no markup, and no control characters but line feeds."""
    shown = "\n".join(map(plain, content.split("\n")))
    return Static(shown, classes=classes, markup=False)


def copy(app: App[Any], what: str, told: str = "copied") -> None:
    """Copy a text, and show its first line."""
    if what:
        app.copy_to_clipboard(what)
    told = f"{told}: {plain(what.partition(chr(10))[0])}"
    app.notify(told if what else "there is nothing to copy", markup=False)


def framed(title: str, *content: Widget, hint: str = "", wide: bool = False) -> Widget:
    leaves = ways({plain(line): "dismiss(None)" for line in hint.split("\n")}, "\n")
    hints = [Static(leaves, classes="dialog-hint")] if hint else []
    head = text(title, classes="dialog-title")
    if wide:  # the hint stays in sight above long content
        return VerticalScroll(head, *hints, *content, classes="dialog wide")
    return Vertical(head, *content, *hints, classes="dialog")


def ways(keys: Mapping[str, str], between: str = " · ") -> Content:
    """Return texts about keys; a click on one runs its action of the screen."""
    each = (
        Content.styled(text, Style.from_meta({"@click": f"screen.{action}"}))
        for text, action in keys.items()
    )
    return Content(between).join(each)


AnswerT = TypeVar("AnswerT")


class Dialog(ModalScreen[AnswerT]):
    """A screen above the main one. It answers once; Escape answers None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "cancel", show=False)
    ]

    def __init__(self, *parts: Widget) -> None:
        super().__init__()
        self._parts = parts

    def compose(self) -> ComposeResult:
        yield from self._parts

    def dismiss(self, result: AnswerT | None = None) -> AwaitComplete:
        """Answer once: a second Enter that arrives together with the first has no effect."""
        return super().dismiss(result) if self.is_active else AwaitComplete()


class AskText(Dialog[str]):
    """Asks for a line of text, such as a file's name; Enter answers."""

    def __init__(self, title: str, value: str, hint: str) -> None:
        hint = f"{hint}\nenter accepts · esc cancels"
        super().__init__(framed(title, Input(value, select_on_focus=True), hint=hint))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value)


ROOM = 58
"""Columns of a list's entry."""
INDENT = 4
"""Columns by which an entry's second line is indented."""


class AskChoice(Dialog[str]):
    """Asks for one of a few names, each with a line of explanation."""

    def __init__(self, title: str, choices: dict[str, str], current: str, hint: str) -> None:

        def option(name: str) -> Option:
            line = f"{'●' if name == current else ' '} {name} · {choices[name]}"
            return Option(textwrap.fill(line, ROOM, subsequent_indent=" " * INDENT), id=name)

        options = OptionList(*map(option, choices), markup=False)
        options.highlighted = [*choices].index(current) if current in choices else 0
        super().__init__(framed(title, options, hint=f"{hint}\nenter chooses · esc cancels"))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(event.option.id)


class AskKey(Dialog[str]):
    """Asks for one of a few answers, by its key or a click; not by Enter, which may be held."""

    def __init__(self, question: str, answers: dict[str, str], escape: str) -> None:
        """`answers` has a line for each key; `escape` is the text about Escape."""
        keys = {f"{key}  {plain(what)}": f"dismiss({key!r})" for key, what in answers.items()}
        super().__init__(framed(question, Static(ways(keys, "\n")), hint=f"esc {escape}"))
        self._answers = answers

    def on_key(self, event: events.Key) -> None:
        if event.key in self._answers:
            event.stop()
            self.dismiss(event.key)


class ShowLines(Dialog[None]):
    """Shows some lines; Escape, Enter, `q` and `e` close it, `?` opens the help above it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,q,e", "dismiss(None)", "close", show=False),
        Binding("question_mark", "app.help", "help", show=False),
    ]

    def __init__(self, title: str, lines: Iterable[str]) -> None:
        super().__init__(framed(title, text("\n".join(lines)), hint="esc closes", wide=True))
