"""Convert a program's terminal output to lines, including redrawn progress bars."""

import codecs
import re
from typing import NamedTuple

from gpudash.format import plain

KEPT_ROWS = 100
"""Newest lines that may be overwritten: no program draws more bars."""
MOST_ROWS = 2000
"""Most lines returned at once; of more, the newest."""
LINE_LIMIT = 1 << 12
"""Most characters of a line; the rest is dropped."""
TAB = 8
TOKEN = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    r"|\x1b\[(?P<numbers>[0-?]*)[ -/]*(?P<final>[@-~])"
    r"|\x1b[\]PX^_][^\x07\x1b]{0,1024}(?:\x07|\x1b\\)"  # titles, links and the like
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f-\x9f])"
)
BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]{0,1024}\x1b?|[ -/]*)\Z")
"""Matches an incomplete escape sequence."""


class _Rewritten(NamedTuple):
    """New lines, and how many of the newest earlier lines they replace."""

    lines: tuple[str, ...]
    replaces: int


class TerminalLines:
    """Converts received bytes to lines."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._escape = ""  # incomplete escape sequence
        self._rows = [""]
        self._row = self._column = 0
        self._returned = 0  # number of rows that `feed` has returned
        self._changed = 0  # first row that has changed since

    @property
    def newest(self) -> tuple[str, ...]:
        return tuple(plain(row.rstrip()) for row in self._rows[: self._returned])

    def feed(self, received: bytes) -> _Rewritten:
        """Return an unfinished line again later."""
        text = self._escape + self._decoder.decode(received)
        at, self._escape = 0, ""
        while at < len(text):
            if token := TOKEN.match(text, at):
                self._take(token)
                at = token.end()
            elif BEGUN.match(text, at):
                self._escape = text[at:]
                break
            else:  # not a valid sequence
                at += 1
        return self._answer()

    def _take(self, token: re.Match[str]) -> None:
        if token["text"]:
            self._write(token["text"])
        elif token["control"]:
            self._control(token["control"])
        elif token["final"]:
            numbers = re.findall(r"\d{1,4}", token["numbers"])
            self._move(token["final"], int(numbers[0]) if numbers else None)

    def _write(self, text: str) -> None:
        line, end = self._rows[self._row], self._column + len(text)
        self._set(line[: self._column].ljust(self._column) + text + line[end:])
        self._column = min(end, LINE_LIMIT)

    def _control(self, character: str) -> None:
        match character:
            case "\n":
                self._down(1)
                self._column = 0
            case "\r":
                self._column = 0
            case "\b":
                self._column = max(self._column - 1, 0)
            case "\t":
                self._column = min((self._column // TAB + 1) * TAB, LINE_LIMIT)

    def _move(self, final: str, number: int | None) -> None:
        count = max(number or 1, 1)
        line = self._rows[self._row]
        match final:
            case "A" | "F":
                self._row = max(self._row - count, 0)
            case "B" | "E":
                self._down(min(count, KEPT_ROWS))
            case "C":
                self._column = min(self._column + count, LINE_LIMIT)
            case "D":
                self._column = max(self._column - count, 0)
            case "G":
                self._column = min(count - 1, LINE_LIMIT)
            case "K" if not number:
                self._set(line[: self._column])
            case "K":
                self._set("" if number == 2 else " " * self._column + line[self._column :])
            case "J" if not number:
                self._set(line[: self._column])
                del self._rows[self._row + 1 :]
                self._changed = min(self._changed, self._row + 1)
        if final in "EF":
            self._column = 0

    def _down(self, count: int) -> None:
        self._row += count
        self._rows += [""] * (self._row + 1 - len(self._rows))
        if len(self._rows) > 2 * MOST_ROWS:
            self._forget(len(self._rows) - MOST_ROWS)

    def _set(self, line: str) -> None:
        self._rows[self._row] = line[:LINE_LIMIT]
        self._changed = min(self._changed, self._row)

    def _forget(self, count: int) -> None:
        del self._rows[:count]
        self._row = max(self._row - count, 0)
        self._returned = max(self._returned - count, 0)
        self._changed = max(self._changed - count, 0)

    def _answer(self) -> _Rewritten:
        self._forget(max(len(self._rows) - MOST_ROWS, 0))
        rows = self._rows if self._rows[-1] else self._rows[:-1]
        first = min(self._changed, self._returned)
        lines = tuple(plain(row.rstrip()) for row in rows[first:])
        answer = _Rewritten(lines, self._returned - first)
        self._returned = self._changed = len(rows)
        self._forget(max(len(self._rows) - KEPT_ROWS, 0))
        return answer
