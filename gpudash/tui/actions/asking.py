"""An app that asks something of the run, and says why that cannot be."""

from collections.abc import Callable

from gpudash.errors import GpudashError
from gpudash.tui.containment import ContainedApp
from gpudash.tui.control import Control, OtherNumbersError
from gpudash.tui.screens.dialog import Answer, AskKey, Confirm, Dialog
from gpudash.tui.screens.main import MainScreen
from workloads.levers import LeverError


class Asking(ContainedApp):
    """What all actions are made of."""

    control: Control
    _main: MainScreen

    def _ask(self, request: Callable[[], None]) -> bool:
        """Make a request of the run; show it, or why it cannot be. Return whether it was made."""
        try:
            request()
        except OtherNumbersError as asked:
            self._ask_first(str(asked), request)
            return False
        except (LeverError, GpudashError) as error:
            self._refuse(error)
            return False
        finally:
            self._main.show()
        return True

    def _ask_first(self, question: str, request: Callable[[], None]) -> None:
        """Make the request once the user agrees that it changes what is computed."""

        def answered(key: str | None) -> None:
            if key == "y":
                self.control.agree()
                self._ask(request)

        answers = {"y": "change it; this is asked once", "n": "leave it as it is"}
        self._open(AskKey(question, answers, "leaves it as it is"), answered)

    def _confirm(self, question: str, yes: str, no: str, agreed: Callable[[], None]) -> None:
        """Ask yes or no; do it where the user agrees."""
        self._open(Confirm(question, yes, no), lambda answer: agreed() if answer else None)

    def _tell_of(self, request: Callable[[], str]) -> None:
        """Make a request that answers with a notice; show it, or why it cannot be."""
        self._ask(lambda: self.notify(request(), markup=False))

    def _refuse(self, error: Exception) -> None:
        self.notify(str(error), severity="error", markup=False)

    def _open(
        self, dialog: Dialog[Answer], answered: Callable[[Answer | None], None] | None = None
    ) -> None:
        """Open a dialog, unless its like is open: the key is held, or it was a double click."""
        if not isinstance(self.screen, type(dialog)):
            self.push_screen(dialog, answered)

    def _copy(self, text: str) -> None:
        if text:
            self.copy_to_clipboard(text)
        self.notify(f"copied: {text}" if text else "there is nothing to copy", markup=False)
