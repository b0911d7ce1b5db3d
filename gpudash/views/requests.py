"""Track the commands that a training has not answered yet."""

from collections.abc import Iterable

from gpudash.protocol.commands import AnyCommand, Change, Pause, Profile, Resume
from gpudash.protocol.records import Settings


class Requests:
    """The open commands, in the order in which they were sent."""

    def __init__(self) -> None:
        self._open: dict[int, AnyCommand] = {}

    def sent(self, command: AnyCommand) -> None:
        """Add a command."""
        self._open[command.id] = command

    def answered(self, ids: Iterable[int]) -> None:
        """Forget the commands with these ids."""
        for one in ids:
            self._open.pop(one, None)

    @property
    def settings(self) -> Settings:
        """Settings that open commands request."""
        asked: Settings = {}
        for command in self._open.values():
            if isinstance(command, Change):
                asked |= command.settings
        return asked

    @property
    def pausing(self) -> bool | None:
        """True if the newest such command is a pause, False if a resume; None without one."""
        asked = [one for one in self._open.values() if isinstance(one, Pause | Resume)]
        return isinstance(asked[-1], Pause) if asked else None

    @property
    def profiling(self) -> bool:
        """Whether a profile is requested."""
        return any(isinstance(one, Profile) for one in self._open.values())
