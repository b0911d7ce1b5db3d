"""Request the training processes' stacks while no step finishes, and log them."""

from collections.abc import Callable, Sequence

from gpudash.protocol.envelope import Envelope
from gpudash.ranks import hangs
from gpudash.snapshot import Hang


class HangWatch:
    """Watches the envelopes of all ranks for a hang; `look` is called at the screen's rate."""

    def __init__(
        self, least_s: float, ask: Callable[[], None], log: Callable[[Sequence[str]], None]
    ) -> None:
        """`ask` requests the stacks of all processes, `log` receives lines for the user."""
        self._ask = ask
        self._log = log
        self._hangs = hangs.Hangs(least_s)
        self._logged: tuple[str, ...] = ()
        self._since_s: float | None = None  # the newest step's end, while a hang is logged

    def take(self, envelope: Envelope) -> None:
        """Fold one envelope."""
        self._hangs.take(envelope)

    def look(self, now_s: float) -> Hang | None:
        """Return the suspected hang, if any; request stacks and log the hang as needed."""
        hang = self._hangs.hang(now_s)
        if self._hangs.wants_stacks(now_s):
            self._ask()
        if hang is None:
            self._log_end()
            return None
        clauses = hangs.clauses(hang)
        if hang.stacks and clauses != self._logged:
            self._log([*hangs.log_lines(hang)])
            self._since_s = self._hangs.newest_s
        self._logged = clauses
        return hang

    def _log_end(self) -> None:
        newest_s, since_s = self._hangs.newest_s, self._since_s
        if newest_s is not None and since_s is not None and newest_s > since_s:
            self._log([f"steps come again; for {newest_s - since_s:.0f} s none had finished"])
        self._logged, self._since_s = (), None
