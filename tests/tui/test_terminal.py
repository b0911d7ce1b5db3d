"""The real program in a real terminal: start, see numbers, toggle, record, quit.

Its worker is the double, but in the one session that watches a real training.
"""

import csv
import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import psutil
import pyte
import pytest
from textual.theme import BUILTIN_THEMES

from gpudash.errors import Exit
from tests import worker_double

PATIENCE_S = 60
MASKED_LOSS = ("masked_loss", "--set", "data=cached", "--batch-size", "1")
SOLARIZED = "fdf6e3"  # the background of a light theme
OTHER_THEMES = "|".join(sorted(BUILTIN_THEMES.keys() - {"solarized-light"}))
Type = Callable[..., "Terminal"]


def row(number: int, configuration: str) -> str:
    """Return a pattern of the history's row with this number: with a rate and its bar."""
    return rf" {number} +[\d,.]+ █.* {configuration}"


class Terminal:
    """A program behind a terminal emulator of so many columns and rows."""

    def __init__(
        self, command: list[str], cwd: Path, columns: int, rows: int, **environment: str
    ) -> None:
        environment = worker_double.environment(
            TERM="xterm-256color", COLORTERM="truecolor", **environment
        )
        for size in ("COLUMNS", "LINES"):  # pytest's readline sets them: they would be believed
            environment.pop(size, None)
        self.program = pexpect.spawn(
            command[0], command[1:], cwd=str(cwd), dimensions=(rows, columns), env=environment
        )
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self._raw = bytearray()

    @property
    def raw(self) -> str:
        """All that was written, also what has been painted over since."""
        return self._raw.decode(errors="replace")

    @property
    def background(self) -> str:
        """The colour behind the panels."""
        return self.screen.buffer[4][0].bg

    @property
    def pane(self) -> list[str]:
        """What the pane, which has the focus, shows of an A/B: down to the figures of its B."""
        lines = self.lines
        top = next(y for y, line in enumerate(lines) if line.startswith(" ━"))
        figures = (y for y, line in enumerate(lines) if y > top and line.startswith(" on "))
        return lines[top + 1 : next(figures, len(lines)) + 1]

    @property
    def lines(self) -> list[str]:
        """What is shown; pyte's own `display` measures every character anew, 5,000 at each look."""
        shown = self.screen
        return [
            "".join(shown.buffer[y][x].data for x in range(shown.columns))
            for y in range(shown.lines)
        ]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def read(self) -> None:
        """Read all that is there; if there is nothing, wait a moment for more."""
        wait_s = 0.1
        try:
            while True:
                written = self.program.read_nonblocking(1 << 16, timeout=wait_s)
                self._raw += written
                self._stream.feed(written)
                wait_s = 0
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
        *arguments: str,
        columns: int = 120,
        rows: int = 40,
        with_torch: bool = False,
        **environment: str,
    ) -> Terminal:
        gpudash = [sys.executable, "-m", "gpudash"] if with_torch else worker_double.gpudash()
        device = () if arguments[:1] in {("replay",), ("ab",)} else ("--device", "cpu")
        command = [*gpudash, *arguments, *device]
        opened.append(Terminal(command, tmp_path, columns, rows, **environment))
        return opened[-1]

    yield begin
    for one in opened:
        one.program.close(force=True)


@pytest.mark.usefixtures("shared_memory")
def test_a_session_at_the_terminal(terminal: Type, tmp_path: Path, short_path: Path) -> None:
    small = ("--set", "num_workers=1", "--batch-size", "2")
    screen = terminal(*small, columns=20, rows=5, with_torch=True, TMPDIR=str(short_path))
    screen.until(r"(?s)too\s+small.*20×5")
    screen.resize(180, 50)
    screen.until("loading torch|building encdec")  # painted, and says what it waits for
    assert re.search(r"▌ starting .*process .* torch .* model .* first training step", screen.text)
    screen.until(r"▶ training .* step +\d*[1-9]\d*")
    screen.until(row(1, "pipelined=off batch_size=2"))  # numbers in the table
    screen.until(r"measuring … \d+ of|-BOUND|(?i:limited by|unclear)")
    program = psutil.Process(screen.program.pid)
    (worker,) = program.children()

    screen.press("p")
    screen.until(r"pipelined +(off → )?\[on\]")
    screen.until(row(2, "pipelined=on"))
    screen.press("+")
    screen.until(r"batch_size +\[4\] ")
    screen.press("u")
    screen.until(r"batch_size +\[2\] ")
    assert worker.is_running()
    assert program.children() == [worker]

    screen.press("r")
    screen.until("record to")
    screen.press("\r")
    screen.until(r"● REC")
    (path,) = tmp_path.glob("gpudash-encdec-*.csv")
    while path.read_text().count("\n") < 2:
        screen.read()
    screen.press("r")
    screen.until(r"(?s)^(?!.*REC )")

    assert program.memory_info().rss < worker.memory_info().rss / 4  # which has torch
    screen.press("q")
    assert screen.end() == 0
    assert not worker.is_running()
    left = [one.name for one in short_path.iterdir()]  # no socket of the loader
    assert all(name.startswith("torchinductor") for name in left)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["levers"].split(";")[0] for row in rows} == {"pipelined=on"}
    assert json.loads(path.with_suffix(".json").read_text())["complete"]


def test_a_verdict_is_kept_and_its_recording_though_nobody_reads_the_terminal_shows_it_again(
    terminal: Type, tmp_path: Path
) -> None:
    """At the same size its replay has the same pane."""
    screen = terminal(*MASKED_LOSS, "--record", "run.csv", "--live")
    screen.until(row(1, "pipelined=off batch_size=1"))
    screen.press("/")
    screen.until("find")
    screen.press("pipelined\r")
    screen.until("▸ pipelined")
    screen.press("a")
    if screen.until(r"([6-9]|\d\d) of at most 40 pairs|m more pairs").group() != "m more pairs":
        screen.press("a")  # ends it: its verdict is of the pairs so far
    screen.until(r"⏎ sets on(, slower)? .+ m more pairs +Y card")
    verdict = screen.until(r"(no difference shown for )?pipelined=on( is [\d.]+ %|:) .*\]").group()
    judged = screen.pane
    screen.press("\r")
    screen.until(r"pipelined +(off → )?\[on\]")
    stall_and_terminate(screen)
    assert json.loads((tmp_path / "run.json").read_text())["complete"]

    replay = terminal("replay", str(tmp_path / "run.csv"), rows=41)  # one row is the scrubber's
    replay.until("◀ replay run.csv")
    replay.until(r"├.*┤ 0:00:\d\d")
    replay.press("\x1b[F")  # End
    replay.press("v")
    replay.until("⁵history")
    replay.press("v")
    replay.until("⁵A/B 1")
    replay.until(re.escape(verdict))
    for _ in range(100):
        if replay.pane == judged:
            break
        replay.read()  # it is painted row by row
    assert replay.pane == judged
    replay.press("a")
    replay.until("a recording is shown")
    replay.press("q")
    assert replay.end() == 0


def stall_and_terminate(screen: Terminal) -> None:
    """Read nothing more, which blocks whoever writes to the terminal, the event loop included."""
    program = psutil.Process(screen.program.pid)
    children = program.children(recursive=True)
    turns: list[int] = []  # of the event loop, after each press
    while len(turns) < 10 or turns[-1] > turns[-10]:  # until it stands still: nobody reads
        screen.press("v")
        time.sleep(0.02)
        turns.append(program.num_ctx_switches().voluntary)
    program.terminate()
    screen.program.wait()
    assert not psutil.wait_procs(children, timeout=PATIENCE_S)[1]


def test_a_start_that_fails_and_a_worker_that_is_killed_are_told_and_a_restart_brings_another(
    terminal: Type,
) -> None:
    screen = terminal("--batch-size", "900000", "--set", "num_workers=0")
    screen.until("failed")
    screen.until("GiB")
    screen.press("-" * 17)
    screen.until(r"batch_size +900000 → [48] ")
    for number in (1, 2):
        screen.press("R")
        screen.until(r"▶ training .* step +\d*[1-9]\d*")
        screen.until(row(number, r".*"))
        psutil.Process(screen.program.pid).children()[0].kill()
        screen.until("✗ failed")
        screen.until(r"SIGKILL|signal 9|killed")
        screen.until("press R to restart")
    screen.resize(80, 24)  # two panels share a place
    for key, shown in 3 * (("5", "━ ⁵history"), ("1", "━ ¹lever")):
        screen.press(key)
        screen.until(shown)
    screen.press("q")
    assert screen.end() == 1
    assert re.search(r"\?1049l(?s:.*)\ngpudash: .*(SIGKILL|signal 9|killed)", screen.raw)


def test_theme_tab_and_the_length_of_the_start_are_remembered_and_both_recordings_are_complete(
    terminal: Type, tmp_path: Path
) -> None:
    """The first one is after Ctrl-C, the second one after its terminal was closed."""
    state = str(tmp_path / "state")
    first = terminal(
        *MASKED_LOSS, "--record", "live.csv", "--live", columns=180, XDG_STATE_HOME=state
    )
    first.until(r"▶ training .* step +\d*[1-9]\d*")
    assert "here last time" not in first.raw
    assert first.background != SOLARIZED
    first.press("\x10")
    first.until("Search for commands")
    first.press("Theme")
    first.until("Change the colours")
    first.press("\r")
    first.until("Search for themes")
    first.press("solarized-light")
    # until it is the only one: the list of what was typed before may still stand there
    first.until(rf"(?s)\A(?!.*({OTHER_THEMES})).*solarized-light.*solarized-light")
    first.press("\r")
    for _ in range(600):
        if first.background == SOLARIZED:
            break
        first.read()
    assert first.background == SOLARIZED, first.text
    for tab in ("⁵history", "⁵A/B", "⁵log"):
        first.press("v")
        first.until(tab)
    first.until(r"live\.csv +[1-9]\d* rows")
    first.press("\x03")
    assert first.end() == 0
    assert json.loads((tmp_path / "live.json").read_text())["complete"]
    assert (tmp_path / "live.csv").read_text().endswith("\n")
    assert re.search(
        r"\?1049l(?s:.*)gpudash: \w+, [\d,]+ steps? in [\d:]+ on .*\r\n"
        r"  rate  (?s:.*)  again    gpudash replay live.csv\r\n",
        first.raw,
    )

    second = terminal(
        *MASKED_LOSS, "--record", "run.csv", "--live", columns=180, XDG_STATE_HOME=state
    )
    second.until(r"▶ training .* step +\d*[1-9]\d*")
    assert re.search(r"about \d+ s here last time", second.raw)
    assert "⁵log" in second.text
    assert second.background == SOLARIZED
    second.until(r"run\.csv +[1-9]\d* rows")
    children = psutil.Process(second.program.pid).children(recursive=True)
    second.program.ptyproc.fileobj.close()  # as a terminal does: its programs get SIGHUP
    second.program.wait()
    assert not psutil.wait_procs(children, timeout=PATIENCE_S)[1]
    assert json.loads((tmp_path / "run.json").read_text())["complete"]


def test_two_commands_are_compared_on_the_screen_and_the_verdict_is_left_on_the_terminal(
    terminal: Type, tmp_path: Path
) -> None:
    train = tmp_path / "train.py"
    train.write_text("from tests.run.scripted_training import main\nmain()\n")
    python = shlex.quote(sys.executable)
    command = f"{python} train.py"
    both = ("ab", "--a", command, "--b", f"{command} --step-ms 100", "--dashboard", "--pairs", "2")
    screen = terminal(*both, "--starts", "2", "--exit-code", rows=24, columns=150)
    screen.until(r"start [12]: .* – [\d:]+ left; 2 of each in all")
    screen.press("p")
    screen.until("two trainings are compared")
    screen.until("so far .*train.py.* -50.0 %, 1 start of each: too few for an interval")
    screen.until("✓ .* is 50.0 % slower .*, 2 starts of each")
    screen.until("finished: q quits")
    assert "⁵A/B" in screen.text
    screen.press("q")
    assert screen.end() == Exit.SLOWER
    assert re.search(
        r"\?1049l(?s:.*)start 2: .*(?s:.*) is 50.0 % slower (?s:.*)the starts: ", screen.raw
    )

    left = terminal(*both)
    left.until("1 start of each")
    left.until("start 2: .*")
    children = psutil.Process(left.program.pid).children(recursive=True)
    left.press("\x03")
    assert left.end() == Exit.INTERRUPTED
    assert not psutil.wait_procs(children, timeout=PATIENCE_S)[1]
    assert re.search(r"\?1049l(?s:.*)the starts: -50.0", left.raw)

    failing = (*both[:3], "--b", f"{python} -c 'print(6 * 7); 1 / 0'", "--dashboard")
    screen = terminal(*failing)
    screen.until("✗ failed")
    screen.until("no verdict: .*exited with 1")
    screen.press("\x1b[C\x1b[C")
    screen.until("⁵output")
    screen.until("ZeroDivisionError")
    screen.press("q")
    assert screen.end() == 1
    assert re.search(
        r"\?1049l(?s:.*)a start without a result: .*(?s:.*)ZeroDivisionError", screen.raw
    )
