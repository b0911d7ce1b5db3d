"""The settings that a run begins with: one change, obeyed before a dashboard is met.

What a script has is known after its first steps alone, so the change comes there, at the same step
in each start and on all ranks.
"""

from collections.abc import Callable

from ..instrument.memory_history import MemoryHistory
from ..instrument.pipes import Sent
from ..instrument.reporter import Reports
from ..instrument.state_sender import StateSender
from ..protocol.commands import Change, CommandOrFigures
from ..protocol.records import Settings, replace
from ..protocol.training import Refused, State
from ..training.command_loop import CommandLoop
from .training import ScriptTraining


class Beginning:
    """Asks for the change as a dashboard would."""

    gone = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._asked: list[CommandOrFigures] = []
        self._commands: CommandLoop | None = None
        self.refused: Refused | None = None

    @property
    def waits(self) -> bool:
        """Whether the settings are neither active nor refused."""
        return self._settings != {}

    def turn(self, training: ScriptTraining, reports: Reports, state: Callable[[], State]) -> None:
        """Call between two steps while it waits."""
        if self._commands is None:
            if not training.found.complete:
                return
            if self._settings.items() <= training.settings.items():
                self._settings = {}
                return
            history = MemoryHistory(training.device, training.owned, self.send)
            life = StateSender(state(), self.send)
            self._commands = CommandLoop(self, life, training, reports, history)
            at_step = training.step + 1  # several ranks come to it prepared
            self._asked = [Change(id=0, at_step=at_step, settings=self._settings)]
            self._commands.read()
        self._commands.turn()
        if not self._commands.is_busy:
            self._settings, self._commands = {}, None

    def read(self) -> list[CommandOrFigures]:
        asked, self._asked = self._asked, []
        return asked

    def send(self, event: Sent) -> None:
        if isinstance(event, Refused):
            self.refused = replace(event, answers=())  # nobody has asked

    def wait(self, timeout_s: float) -> None: ...
