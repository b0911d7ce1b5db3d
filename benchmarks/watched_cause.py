"""Runs a script of benchmarks/causes under gpudash, as a user's own, and what runs beside it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gpudash.cli.headless import News
from gpudash.cli.user_training import plan_of
from gpudash.protocol.commands import Plan
from gpudash.run import runs
from gpudash.run.command_process import Foreground
from gpudash.run.job import TrainingJob
from gpudash.run.session import Session
from gpudash.run.user_command import UserCommand, understand
from gpudash.snapshot import Snapshot
from gpudash.trace.accounting import summarise
from gpudash.trace.read import read
from gpudash.trace.summary import Summary

SCRIPTS = Path(__file__).parent / "causes"
RANKS = 2
PROFILED_STEPS = 10
LOOK_S = 0.25
STOP_S = 5.0
"""Patience with a script that was interrupted, and with one that was terminated."""


def cause_of(script: str) -> str:
    """Return the word that a script's name begins with."""
    return script.partition("_")[0]


class WatchedCause:
    """A script under gpudash."""

    def __init__(
        self, session: Session, news: News, until_s: float, mend: Callable[[str], None]
    ) -> None:
        self.session = session
        self._news, self._until_s = news, until_s
        self.mend = mend
        """Take the cause away for side B, and bring it back for side A."""

    @property
    def snapshot(self) -> Snapshot:
        """The newest snapshot."""
        return self._news.snapshot

    def goes_on(self) -> bool:
        """Return whether the script runs, and may."""
        return time.monotonic() < self._until_s and not self.session.wait(0)

    def wait(self, until: Callable[[Snapshot], bool], seconds: float = float("inf")) -> bool:
        """Wait until something is seen, or for so long; return whether it was seen."""
        give_up_s = time.monotonic() + seconds
        while not until(self.snapshot):
            if not self.goes_on() or time.monotonic() > give_up_s:
                return False
            time.sleep(LOOK_S)
        return True

    def profiled(self) -> Summary | None:
        """Profile some steps, and let the answer rest on them; None where that cannot be."""
        if "profile" not in self.snapshot.can:
            return None
        with tempfile.TemporaryDirectory() as folder:
            path, before = Path(folder) / "trace.json", self.snapshot.profile
            asked = self.session.profile(PROFILED_STEPS, path)
            self.wait(lambda now: now.last_command >= asked and not now.profiling)
            if self.snapshot.profile is before:
                return None
            summary = summarise(read(path))
        self.session.deepen(*self.snapshot.profile_of, summary)
        return summary


@contextmanager
def watching(script: str, device: str, limit_s: float) -> Iterator[WatchedCause]:
    """Start a script under gpudash, and whatever has to run beside it; end all of it."""
    mended_while = Path(tempfile.gettempdir()) / f"mended-{os.getpid()}"
    busy: list[subprocess.Popen[bytes]] = []

    def mend(side: str) -> None:
        for process in busy:
            process.send_signal(signal.SIGSTOP if side == "B" else signal.SIGCONT)
        if side == "B":
            mended_while.touch()
        else:
            mended_while.unlink(missing_ok=True)

    with ExitStack() as at_end:
        if cause_of(script) == "others":
            busy += at_end.enter_context(neighbours(last_core()))
        at_end.callback(mended_while.unlink, missing_ok=True)
        command = _command(script, device, mended_while, last_core())
        yield at_end.enter_context(watched(command, limit_s, mend))


@contextmanager
def watched(
    command: UserCommand, limit_s: float, mend: Callable[[str], None]
) -> Iterator[WatchedCause]:
    """Start a command under gpudash; end it."""
    # a job in the background ignores Ctrl-C, and so would the script
    signal.signal(signal.SIGINT, signal.default_int_handler)
    place, news = runs.begin(), News(quiet=True)
    children: list[Foreground] = []

    def start(_plan: Plan) -> TrainingJob:
        children.append(Foreground(command, place, stdout=sys.stderr.fileno()))
        return TrainingJob(command.name, children[0], place)

    with ExitStack() as at_end:
        session = Session(plan_of(command), start_source=start)
        at_end.callback(session.close)
        session.start(news)
        try:
            yield WatchedCause(session, news, time.monotonic() + limit_s, mend)
        finally:
            for _ in Foreground.stops:  # interrupted, then terminated, then killed
                session.stop()
                if session.wait(STOP_S):
                    break
            session.close()
            children[0].wait()
            children[0].close()


def last_core() -> str:
    return str(max(os.sched_getaffinity(0)))


def _command(script: str, device: str, mended_while: Path, core: str) -> UserCommand:
    words: tuple[str, ...] = (
        *(f"{SCRIPTS / script}.py", "--device", device, "--seconds", "600"),
        *("--mended-while", str(mended_while)),
    )
    if cause_of(script) == "communication":
        ranks = ("--standalone", "--nproc-per-node", str(RANKS))
        words = ("--", sys.executable, "-m", "torch.distributed.run", *ranks, *words)
    elif cause_of(script) == "others":
        words = ("--", "taskset", "-c", core, sys.executable, *words)
    return understand(words, sys.executable)


@contextmanager
def neighbours(core: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Keep a core busy with two processes that are no part of the training."""
    busy = ("taskset", "-c", core, sys.executable, "-c", "while True: pass")
    processes = [subprocess.Popen(busy) for _ in range(2)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
