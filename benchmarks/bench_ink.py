"""How much of a screen has ink: the share of its cells, and its longest block of blank rows.

A frame of each reference workload, after SECONDS of training, at each size. A cell has ink if it
has a character, or another background than the screen: full cells of a lane are blanks on a hue.
Rows are those of the ledger's columns, and of those beside it.

    python benchmarks/bench_ink.py [SECONDS] [WORKLOAD …]
"""

import sys
from itertools import groupby

import pexpect
import pyte

SIZES = ((80, 24), (120, 40), (200, 50))
LEDGER = 120
"""Columns of the ledger where the charts are beside it."""
WORKLOADS = ("encdec", "masked_loss", "augment", "jpeg_input")


def inked(frame: str, columns: int, rows: int) -> list[list[bool]]:
    """Return of each cell whether it has ink."""
    screen = pyte.Screen(columns, rows + 1)
    pyte.Stream(screen).feed(frame)
    grounds = {screen.buffer[row][columns - 1].bg for row in (0, rows // 2, rows - 1)}
    return [
        [
            cell.data != " " or cell.bg not in grounds
            for cell in map(line.__getitem__, range(columns))
        ]
        for line in map(screen.buffer.__getitem__, range(rows))
    ]


def frame_of(workload: str, seconds: float, columns: int, rows: int) -> str:
    words = ["-m", "gpudash", workload, "--once", "--color", "always", "--duration", str(seconds)]
    size = (rows, columns)
    terminal = pexpect.spawn(sys.executable, words, 600, dimensions=size, encoding="utf-8")
    terminal.expect(pexpect.EOF)
    return terminal.before or ""


def blank_rows(cells: list[list[bool]], columns: slice) -> int:
    blank = (not any(line[columns]) for line in cells)
    return max((len([*same]) for is_blank, same in groupby(blank) if is_blank), default=0)


def main(seconds: str = "20", *workloads: str) -> None:
    for workload in workloads or WORKLOADS:
        for columns, rows in SIZES:
            cells = inked(frame_of(workload, float(seconds), columns, rows), columns, rows)
            share = sum(map(sum, cells)) / (columns * rows)
            sides = (slice(LEDGER), slice(LEDGER, None)) if columns > LEDGER else (slice(None),)
            longest = max(blank_rows(cells, side) for side in sides)
            print(f"{workload} {columns}×{rows}: {100 * share:.0f} % ink, {longest} blank rows")


if __name__ == "__main__":
    main(*sys.argv[1:])
