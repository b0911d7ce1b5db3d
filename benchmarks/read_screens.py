"""Press a newcomer's keys on a script under the dashboard, and keep what the screen shows.

    python benchmarks/read_screens.py FOLDER SECONDS SCRIPT.py [ARGUMENTS …]

In a terminal of 120×40: the first answer, the same at 80×24, after a profile (`t`), after a proof
by slowing (`E`), what `e` says, and the A/B of what is proposed (`x`). FOLDER gets a file of the
script's screens, and its recording, whose JSON has the answer, the model's slopes and the measured
ones. Each wait is at most SECONDS, that for the A/B twice as long.
"""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pexpect
import psutil
import pyte

ROOT = Path(__file__).resolve().parent.parent
WIDE, NARROW = (120, 40), (80, 24)
TIMELINE = "w where"
"""Is in the timeline's footer, and nowhere else."""
SLOWING = "slowing one part"
"""Stands in place of the answer while a proof is made."""
ASKS = "y  change it"
"""Is asked of a lever that computes other numbers."""
BEGIN_S = 60.0
"""Until the script trains: it imports torch, perhaps for the first time on this machine."""


class Terminal:
    """The dashboard in a terminal."""

    def __init__(self, words: list[str], kept: Path) -> None:
        self._screen = pyte.Screen(*WIDE)
        self._stream = pyte.ByteStream(self._screen)
        self._kept = kept
        columns, rows = WIDE
        self._child: pexpect.spawn[bytes] = pexpect.spawn(
            words[0], words[1:], dimensions=(rows, columns), timeout=5
        )

    def text(self) -> str:
        """Return what the screen shows."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def wait(self, seconds: float, until: Callable[[str], bool] = lambda _text: False) -> None:
        """Paint what comes for so long, or until the screen satisfies `until`."""
        give_up_s = time.monotonic() + seconds
        while time.monotonic() < give_up_s and not until(self.text()):
            try:
                self._stream.feed(self._child.read_nonblocking(1 << 16, timeout=0.1))
            except pexpect.TIMEOUT:
                continue
            except pexpect.EOF:
                return

    def press(self, keys: str) -> None:
        """Type keys."""
        self._child.send(keys)

    def resize(self, size: tuple[int, int]) -> None:
        """Give the terminal this size, and wait until it is painted."""
        columns, rows = size
        self._screen.resize(rows, columns)
        self._child.setwinsize(rows, columns)
        self.wait(1.0)

    def keep(self, what: str) -> None:
        """Write down what the screen shows."""
        with self._kept.open("a") as kept:
            kept.write(f"──── {what}\n{self.text()}\n")

    def close(self) -> None:
        """Leave the dashboard, and end the script: the next one is not to share the device."""
        left = psutil.Process(self._child.pid).children(recursive=True)
        self.press("q")
        self.wait(1.0)
        self.press("\r")
        self.wait(8.0)
        self._child.close(force=True)
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=10)


def main() -> None:
    """Walk through the dashboard on one script."""
    folder, seconds, script = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    name = Path(script).stem
    recording = folder / f"{name}.csv"
    gpudash = [sys.executable, "-m", "gpudash", "run", "--live", "--record", str(recording)]
    terminal = Terminal([*gpudash, script, *sys.argv[4:]], folder / f"{name}.txt")
    terminal.wait(BEGIN_S, lambda text: "bound" in text.lower() or "x  TRY" in text)
    terminal.wait(4.0)
    terminal.keep("the first answer")
    terminal.resize(NARROW)
    terminal.keep("the same at 80×24")
    terminal.resize(WIDE)
    terminal.press("t")
    terminal.wait(seconds, lambda text: TIMELINE in text)
    terminal.press("\x1b")
    terminal.wait(3.0, lambda text: TIMELINE not in text)
    terminal.wait(1.5)
    terminal.keep("after a profile")
    terminal.press("E")
    terminal.wait(2.0, lambda text: SLOWING in text)
    terminal.wait(seconds, lambda text: SLOWING not in text)
    terminal.wait(1.0)
    terminal.keep("after a proof")
    terminal.press("e")
    terminal.wait(1.0)
    terminal.keep("why")
    terminal.press("\x1b")
    terminal.wait(1.0)
    if SLOWING in terminal.text():
        terminal.press("a")
        terminal.wait(seconds, lambda text: "TRY" in text)
    terminal.press("x")
    terminal.wait(1.0)
    if ASKS in terminal.text():
        terminal.press("y")
    terminal.wait(2 * seconds, lambda text: "faster" in text or "no difference" in text.lower())
    terminal.keep("the A/B of the proposal")
    terminal.press("a")
    terminal.wait(2.0)
    terminal.keep("its end")
    terminal.close()


if __name__ == "__main__":
    main()
