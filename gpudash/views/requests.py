"""What is asked of a training and not answered so far."""

from collections.abc import Iterable

from gpudash.protocol import AnyCommand, Change, Pause, Profile, Resume, Settings


class Requests:
    """The open requests, in the order in which they were sent."""

    def __init__(self) -> None:
        self._open: dict[int, AnyCommand] = {}

    def sent(self, command: AnyCommand) -> None:
        """Take a request."""
        self._open[command.id] = command

    def answered(self, ids: Iterable[int]) -> None:
        """Forget those that were answered."""
        for one in ids:
            self._open.pop(one, None)

    def clear(self) -> None:
        """Forget all, as nobody is left to answer."""
        self._open.clear()

    @property
    def settings(self) -> Settings:
        """The levers asked for."""
        asked: Settings = {}
        for command in self._open.values():
            if isinstance(command, Change):
                asked |= command.settings
        return asked

    @property
    def pausing(self) -> bool | None:
        """Whether the newest wish is to pause, or to go on; None without one."""
        asked = [one for one in self._open.values() if isinstance(one, Pause | Resume)]
        return isinstance(asked[-1], Pause) if asked else None

    @property
    def profiling(self) -> bool:
        """Whether steps are to be traced."""
        return any(isinstance(one, Profile) for one in self._open.values())
