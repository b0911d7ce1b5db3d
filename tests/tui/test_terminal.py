"""The real program in a real terminal: start, see numbers, toggle, record, quit.

Its worker is the double, but in the one session that watches a real training.
"""

import csv
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import psutil
import pyte
import pytest

from tests import worker_double

PATIENCE_S = 60
Type = Callable[..., "Terminal"]


class Terminal:
    """A program behind a terminal emulator of so many columns and rows."""

    def __init__(self, command: list[str], cwd: Path, columns: int, rows: int) -> None:
        environment = worker_double.environment(TERM="xterm-256color", COLORTERM="truecolor")
        for size in ("COLUMNS", "LINES"):  # pytest's readline sets them: they would be believed
            environment.pop(size, None)
        self.program = pexpect.spawn(
            command[0], command[1:], cwd=str(cwd), dimensions=(rows, columns), env=environment
        )
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    def read(self) -> None:
        try:
            self._stream.feed(self.program.read_nonblocking(1 << 16, timeout=0.1))
        except pexpect.TIMEOUT:
            pass
        except pexpect.EOF:
            time.sleep(0.05)

    def until(self, pattern: str) -> re.Match[str]:
        """Read until the screen shows the pattern."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{self.text}"
            self.read()
        return found

    def press(self, keys: str) -> None:
        self.program.send(keys)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self.program.setwinsize(rows, columns)

    def end(self) -> int | None:
        deadline = time.monotonic() + PATIENCE_S
        while self.program.isalive():
            assert time.monotonic() < deadline, self.text
            self.read()
        return self.program.exitstatus


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Type]:
    opened: list[Terminal] = []

    def begin(
        *arguments: str, columns: int = 120, rows: int = 40, with_torch: bool = False
    ) -> Terminal:
        gpudash = [sys.executable, "-m", "gpudash"] if with_torch else worker_double.gpudash()
        command = [*gpudash, "--device", "cpu", *arguments]
        opened.append(Terminal(command, tmp_path, columns, rows))
        return opened[-1]

    yield begin
    for one in opened:
        one.program.close(force=True)


def test_a_session_at_the_terminal(terminal: Type, tmp_path: Path) -> None:
    small = ("--set", "num_workers=1", "--batch-size", "2")
    screen = terminal(*small, columns=180, rows=50, with_torch=True)
    screen.until("loading torch|building encdec")  # painted, and says what it waits for
    screen.until(r"training +step +\d*[1-9]\d*")
    screen.until(r"▸ 1 pipelined=off batch_size=2 +\d+ +[\d.]+ ")  # numbers in the table
    worker = psutil.Process(screen.program.pid).children()[0]

    screen.press("p")
    screen.until(r"pipelined +on")
    screen.until(r"▸ 2 pipelined=on +\d+ +[\d.]+ ")
    screen.press("+")
    screen.until(r"batch_size +4 ")
    screen.until(r"▸ 3 pipelined=on batch_size=4 +\d+ +[\d.]+ ")
    assert worker.is_running()
    assert psutil.Process(screen.program.pid).children()[0].pid == worker.pid

    screen.press("r")
    screen.until("record to")
    screen.press("\r")
    screen.until(r"● REC")
    (path,) = tmp_path.glob("gpudash-encdec-*.csv")
    while path.read_text().count("\n") < 4:
        screen.read()
    screen.press("r")
    screen.until(r"(?s)^(?!.*REC )")

    assert psutil.Process(screen.program.pid).memory_info().rss < 80e6
    screen.press("q")
    assert screen.end() == 0
    assert not worker.is_running()
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["levers"].split(";")[0] for row in rows} == {"pipelined=on"}
    assert json.loads(path.with_suffix(".json").read_text())["complete"]


def test_an_ab_at_the_terminal(terminal: Type) -> None:
    screen = terminal("masked_loss", "--set", "data=cached", "--batch-size", "1")
    screen.until(r"▸ 1 pipelined=off batch_size=1 +\d+ +[\d.]+ ")
    screen.press("a")
    screen.until(r"A/B pipelined: off or on\? \d+/40 pairs")
    screen.until(r"pipelined=on: [+-][\d.]+ % \[\S+, \S+\]")
    assert re.search(r"A/B: pipelined off or on, \d+ of 40 pairs; a ends it", screen.text)
    screen.press("a")
    screen.until("no verdict: ")
    screen.press("\x1b")
    screen.until(r"(?s)^(?!.*no verdict)")
    assert re.search(r"pipelined +off ", screen.text)
    assert "▸ 1 pipelined=off" in screen.text
    screen.press("q")
    assert screen.end() == 0


def test_two_enters_in_one_write_answer_a_dialog_once(terminal: Type) -> None:
    screen = terminal("masked_loss", "--set", "data=cached", "--batch-size", "1")
    screen.until(r"training +step +\d*[1-9]\d*")
    screen.press("\x1b[B\r")
    screen.until("enter accepts")
    screen.press("2\r\r")
    screen.until(r"batch_size +2 ")
    screen.until(r"▸ 2 batch_size=2 +\d+ +[\d.]+ ")
    screen.press("q")
    assert screen.end() == 0


def test_a_small_terminal_says_so_and_recovers(terminal: Type) -> None:
    screen = terminal(columns=20, rows=5)
    screen.until(r"(?s)too\s+small.*20×5")
    screen.resize(80, 24)
    screen.until("throughput")
    screen.press("\x03")
    assert screen.end() == 0


def test_settings_that_cannot_start_can_be_changed_and_restarted(terminal: Type) -> None:
    screen = terminal("--batch-size", "900000", "--set", "num_workers=0")
    screen.until("failed")
    screen.until("GiB")
    screen.press("-")
    for _ in range(16):
        screen.press("-")
    screen.until(r"batch_size +900000 → [48] ")
    screen.press("R")
    screen.until(r"training +step +\d*[1-9]\d*")
    screen.press("q")
    assert screen.end() == 0


def test_a_record_with_a_screen_is_complete_after_ctrl_c(terminal: Type, tmp_path: Path) -> None:
    screen = terminal("--record", "live.csv", "--live", columns=180)
    screen.until(r"live\.csv +[1-9]\d* rows")
    screen.press("\x03")
    assert screen.end() == 0
    assert json.loads((tmp_path / "live.json").read_text())["complete"]
    assert (tmp_path / "live.csv").read_text().endswith("\n")


def test_a_terminal_that_takes_nothing_more_does_not_keep_it_alive(
    terminal: Type, tmp_path: Path
) -> None:
    """Whoever writes to it is blocked then, the event loop included."""
    path = tmp_path / "run.csv"
    screen = terminal("masked_loss", "--record", str(path), "--live", "--set", "data=cached")
    screen.until(r"▸ 1 pipelined=off batch_size=\d+ +\d+ +[\d.]+ ")
    program = psutil.Process(screen.program.pid)
    children = program.children(recursive=True)
    turns: list[int] = []  # of the event loop, after each press
    while len(turns) < 10 or turns[-1] > turns[-10]:  # until it stands still: nobody reads
        screen.press("?\x1b")
        time.sleep(0.02)
        turns.append(program.num_ctx_switches().voluntary)
    program.terminate()
    screen.program.wait()
    assert not psutil.wait_procs(children, timeout=PATIENCE_S)[1]
    assert json.loads(path.with_suffix(".json").read_text())["complete"]
