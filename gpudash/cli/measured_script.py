"""Run the user's command only to measure it: it ends with that, and so does all it has started."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf

from gpudash.cli.headless import REDRAW_S, Printer
from gpudash.cli.headless_script import HeadlessScript, in_shell
from gpudash.cli.stdout import complain
from gpudash.run.guarded import Guarded
from gpudash.run.guardian import HAS_BEEN_ASKED
from gpudash.run.session import Session
from gpudash.run.user_command import UserCommand
from gpudash.snapshot import ENDED, Snapshot

OWN_END_S = 5.0
"""Seconds that a command may take to end after its training before it is asked to."""


class MeasuredScript(HeadlessScript):
    """A command that has the terminal, the streams and the signals until it is measured."""

    def __init__(self, command: UserCommand, *, output_to_stderr: bool = False) -> None:
        super().__init__(command)
        self._output_to_stderr = output_to_stderr
        self._was_stopped = False
        self._trained_s = inf  # when its training was seen to have ended

    def _begin(self) -> Guarded:
        return Guarded(self._command, self._place, output_to_stderr=self._output_to_stderr)

    def measure(
        self,
        session: Session,
        over: Callable[[], bool],
        line: Callable[[Snapshot], str],
    ) -> None:
        """Ask the command to end once `over()` is true, or after an interrupt; run until it has."""
        printer = Printer(sys.stderr, line, shared=True)
        is_ending = False
        session.start(self.news)
        try:
            while not session.wait(REDRAW_S):
                printer.show(self.news)
                self._report_hang(self.news.snapshot.hang)
                if not is_ending and (self.interrupted or (over() and not self._ends_by_itself())):
                    is_ending = True
                    self._end(session)
        finally:
            session.close()  # which ends whatever is left, also after a failure of ours
            self._wait()

    def _ends_by_itself(self) -> bool:
        """Whether its training has just ended: then the command's exit code is its own."""
        if self.news.snapshot.state not in ENDED:
            return False
        self._trained_s = min(self._trained_s, time.monotonic())
        return time.monotonic() < self._trained_s + OWN_END_S

    def _end(self, session: Session) -> None:
        assert self._child
        if self.interrupted:
            self._child.signal(HAS_BEEN_ASKED)
            return
        with suppress(OSError):  # it has ended by itself
            self._place.end()
        session.stop()
        self._was_stopped = True

    @property
    def failed_with(self) -> int | None:
        """None if the command has not failed, or was asked to end."""
        assert self.source
        code = self.source.exit_code
        return None if not code or self._was_stopped or self.interrupted else in_shell(code)

    def own_failure(self, missing: str) -> int | None:
        """Print that a failed command leaves something `missing`; return its `failed_with`."""
        assert self.source
        if self.failed_with is not None:
            complain(f"gpudash: no {missing}: {self.source.how_it_ended()}")
        return self.failed_with
