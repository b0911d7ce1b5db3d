"""A listener of a session."""

from collections.abc import Callable, Sequence

from gpudash.protocol.training import Failed
from gpudash.snapshot import Snapshot
from tests.waiting import until


class Screen:
    """Keeps what it receives; with `fails`, it raises at the first log line."""

    def __init__(self, *, fails: bool = False) -> None:
        self.newest = Snapshot()
        self.log: list[str] = []
        self.output: list[str] = []
        self.failures: list[Failed] = []
        self._fails = fails

    def on_snapshot(self, snapshot: Snapshot, /) -> None:
        self.newest = snapshot

    def on_log(self, lines: Sequence[str], /) -> None:
        if self._fails:
            raise ZeroDivisionError("oops")
        self.log += lines

    def on_output(self, lines: Sequence[str], replaces: int, /) -> None:
        self.output[len(self.output) - replaces :] = lines

    def on_rewind(self) -> None:
        self.log.clear()

    def on_failure(self, failure: Failed, /) -> None:
        self.failures.append(failure)

    def until(self, condition: Callable[[Snapshot], object]) -> Snapshot:
        until(
            lambda: condition(self.newest),
            lambda: (self.newest.state, self.newest.status, self.log),
        )
        return self.newest
