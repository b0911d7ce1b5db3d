"""The base of all actions: requests to the run, dialogs, and notices of refusals."""

from collections.abc import Callable

from gpudash.errors import GpudashError
from gpudash.tui.containment import ContainedApp
from gpudash.tui.control import Control
from gpudash.tui.lever_control import OtherNumbersError
from gpudash.tui.screens.dialog import AnswerT, AskKey, Dialog
from gpudash.tui.screens.main import MainScreen
from workloads.levers import LeverError


class Asking(ContainedApp):
    """The base of all actions."""

    control: Control
    main_screen: MainScreen

    def _ask(self, request: Callable[[], None]) -> bool:
        """Make a request, and show it or why it is refused; return whether it was made."""
        try:
            request()
        except OtherNumbersError as asked:
            self._ask_first(str(asked), request)
            return False
        except (LeverError, GpudashError) as error:
            self._refuse(error)
            return False
        finally:
            self.main_screen.show()
        return True

    def _ask_first(self, question: str, request: Callable[[], None]) -> None:
        def agreed() -> None:
            self.control.levers.agreed = True
            self._ask(request)

        self._confirm(question, "change it; this is asked once", "leave it as it is", agreed)

    def _confirm(self, question: str, yes: str, no: str, agreed: Callable[[], None]) -> None:
        dialog = AskKey(question, {"y": yes, "n": no}, no)
        self._open(dialog, lambda key: agreed() if key == "y" else None)

    def _ask_and_notify(self, request: Callable[[], str]) -> None:
        self._ask(lambda: self.notify(request(), markup=False))

    def _refuse(self, error: Exception) -> None:
        self.notify(str(error), severity="error", markup=False)

    def _open(
        self, dialog: Dialog[AnswerT], answered: Callable[[AnswerT | None], None] | None = None
    ) -> None:
        """Do nothing if a dialog of this type is open (held key, double click)."""
        if not isinstance(self.screen, type(dialog)):
            self.push_screen(dialog, answered)
