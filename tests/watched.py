"""What a training says to a dashboard, read until something has come."""

from collections.abc import Callable
from typing import TypeVar

from gpudash.protocol.commands import AnyCommand
from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.training import Printed, Progress, Step
from gpudash.run.source import Source
from tests.lives import told_by
from tests.waiting import until

T = TypeVar("T")


class Watched:
    """A source, and all its messages."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.envelopes: list[Envelope] = []

    def read(self) -> None:
        self.envelopes += self.source.read()

    def until(self, condition: Callable[[], T]) -> T:
        """Read until this holds; return what it is then."""

        def turn() -> T:
            self.read()
            return condition()

        said = (one.body for one in self.envelopes if not isinstance(one.body, Progress))
        return until(turn, lambda: list(said)[-20:])

    def of(self, kind: type | str, rank: int | None = None) -> list:
        return told_by(self.envelopes, kind, rank)

    def first(self, kind: type | str, rank: int | None = None) -> Event:
        return self.until(lambda: self.of(kind, rank))[0]

    def answers(self, number: int) -> dict[int, Event]:
        """What each rank has answered to this command."""
        answers = [one for one in self.envelopes if number in getattr(one.body, "answers", ())]
        return {one.rank: one.body for one in answers}

    def ask(self, command: AnyCommand, ranks: int = 1) -> list[Event]:
        """Send a command; return what so many ranks answer, in their order."""
        self.source.send(command)
        answers = self.until(
            lambda: len(found := self.answers(command.id)) == ranks and sorted(found.items())
        )
        return [body for _, body in answers]

    def steps(self, rank: int = 0) -> list[Step]:
        return [step for one in self.of(Progress, rank) for step in one.steps]

    def lines(self) -> list[str]:
        """What it has printed, as a terminal shows it."""
        lines: list[str] = []
        for one in self.of(Printed):
            del lines[len(lines) - one.replaces :]
            lines += one.lines
        return lines

    def end(self) -> str | None:
        """Read to its end; return how it was."""
        self.until(lambda: self.source.ended() is not None)
        self.read()
        return self.source.ended()
