"""A sweep while it runs: every cell of a table once a round, in random order.

A cell is a row's settings and a column's together. The first column is what the others of
its row are compared with, round by round, so what drifts between rounds cancels.

Rows may name numbers of processes. Each number is a training of its own, so what it scales by is
compared between two trainings that followed each other (`unpaired_t.py`).
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gpudash.compare.blocks import BlockLog, Measured, Outcome
from gpudash.compare.paired_t import Estimate, estimate, round_order
from gpudash.compare.unpaired_t import Part, Ratio, rate, ratio, spread_of_blocks
from gpudash.protocol import Block, Event, Reading, RefusalKind, Settings
from gpudash.statistics import mean

NPROC = "nproc"
"""Stands among a row's settings as levers do: how many processes train."""


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """What is swept."""

    rows: tuple[Settings, ...]
    columns: tuple[Settings, ...]
    rounds: int
    min_steps: int
    min_s: float
    seed: int = 0

    def changes(self, cell: int) -> Settings:
        """Return the levers of a cell, counted row by row."""
        row, column = divmod(cell, len(self.columns))
        return self.rows[row] | self.columns[column]

    def levers(self, cell: int) -> Settings:
        """Return what a training is told of a cell's settings."""
        return {name: value for name, value in self.changes(cell).items() if name != NPROC}

    def nproc(self, cell: int) -> int | None:
        """Return how many processes train a cell; None where no cell says."""
        named = self.changes(cell).get(NPROC)
        return None if named is None else int(named)

    @property
    def counts(self) -> list[int]:
        """The numbers of processes, each once; none where no cell says."""
        found = dict.fromkeys(self.nproc(cell) for cell in range(self.cells))
        return [count for count in found if count is not None]

    @property
    def cells(self) -> int:
        """How many there are."""
        return len(self.rows) * len(self.columns)

    @property
    def named(self) -> frozenset[str]:
        """What any cell sets."""
        return frozenset(name for one in (*self.rows, *self.columns) for name in one)

    @property
    def varied(self) -> frozenset[str]:
        """Levers that every cell sets: what they are otherwise does not matter."""
        return frozenset.intersection(
            *(frozenset(self.changes(cell)) for cell in range(self.cells))
        )


class BlockRow(msgspec.Struct, frozen=True, kw_only=True):
    """One block of a sweep as it was measured; or why there is none of its cell."""

    round: int
    cell: int
    steps: int | None = None
    samples: int | None = None
    busy_s: float | None = None
    host_ms: float | None = None
    util_pct: float | None = None
    cpu_pct: float | None = None
    core_wait_pct: float | None = None
    failure: str | None = None
    failure_kind: RefusalKind | None = None
    """None also where an older file does not say, as `core_wait_pct` is."""

    @property
    def refused(self) -> bool:
        """Its setting cannot be here, however much memory there is."""
        return self.failure_kind == "bad_setting"

    @property
    def ms_per_sample(self) -> float | None:
        """The cost that settings are compared by."""
        return self.busy_s * 1e3 / self.samples if self.busy_s and self.samples else None


def whole_rounds(grid: Grid, rows: Sequence[BlockRow]) -> list[BlockRow]:
    """Return what a resumed sweep keeps: the rounds in which no cell is missing, and failures.

    Blocks of a round are compared with each other, so one training has to measure them all. Each
    number of processes is a training of its own, with rounds of its own.
    """
    rows = [row for row in rows if row.cell < grid.cells]
    cells: dict[int | None, list[int]] = {}
    for cell in range(grid.cells):
        cells.setdefault(grid.nproc(cell), []).append(cell)
    failed = {row.cell: row.round for row in rows if row.failure is not None}
    measured = {(row.round, row.cell) for row in rows if row.failure is None}
    whole = {
        (turn, count)
        for turn in {row.round for row in rows}
        for count, own in cells.items()
        if all((turn, cell) in measured or failed.get(cell, turn + 1) <= turn for cell in own)
    }
    return [
        row for row in rows if (row.round, grid.nproc(row.cell)) in whole or row.failure is not None
    ]


class CellResult(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of the table."""

    steps_per_s: float | None = None
    samples_per_s: float | None = None
    host_ms: float | None = None
    util_pct: float | None = None
    cpu_pct: float | None = None
    core_wait_pct: float | None = None
    change: Estimate | None = None
    """Throughput against the row's first column; None for that one, or if not measured."""
    efficiency: Ratio | None = None
    """Throughput over that of one process times the number of processes; None for one process."""
    failure: str | None = None
    out_of_memory: bool = False
    """That is why it failed."""


class Sweep:
    """Runs a grid; rounds that an earlier run measured are not run again."""

    def __init__(self, grid: Grid, known: Iterable[BlockRow] = ()) -> None:
        self.grid = grid
        self._log = BlockLog()
        self._known: dict[tuple[int, int], BlockRow] = {}
        self.failures: dict[int, BlockRow] = {}
        """Cells that cannot be run."""
        for row in known:
            self._keep(row)
        self._numbers: dict[int, tuple[int, int]] = {}
        self.nproc = self.next_nproc
        """Where cells say how many processes train them: those of this number are run."""
        self.done = False
        """Nothing more of it is being run."""
        self.failure: str | None = None
        """Why the sweep ended early."""

    @property
    def blocks_done(self) -> int:
        """Blocks that need not be run any more."""
        return self.blocks_planned - len(list(self._missing()))

    @property
    def blocks_planned(self) -> int:
        """Blocks of the whole sweep."""
        return self.grid.cells * self.grid.rounds

    @property
    def next_nproc(self) -> int | None:
        """The first number of processes with something left to run; None where there is none."""
        left = {self.grid.nproc(cell) for _, cell in self._missing()}
        return next((count for count in self.grid.counts if count in left), None)

    @property
    def refusals(self) -> list[str]:
        """Why not a single cell can be run, each reason once; empty where one may be."""
        rows = self.failures.values()
        if len(rows) < self.grid.cells or self._known or not all(row.refused for row in rows):
            return []
        return list(dict.fromkeys(row.failure for row in rows if row.failure is not None))

    def begin(self, run: int, ranks: int = 1) -> tuple[Block, ...]:
        """Return what the worker is to run, under this number."""
        self._numbers = dict(enumerate(self._to_run()))
        self.done = not self._numbers
        blocks = self._blocks()
        self._log = BlockLog(run, blocks, ranks)
        return blocks

    def fold(self, item: Event | Reading) -> tuple[list[BlockRow], tuple[Block, ...] | None]:
        """Take one record; return what it completes, and other blocks to run if they change."""
        if self.done:
            return [], None
        rows = [row for outcome in self._log.fold(item) if (row := self._take(outcome))]
        if self._log.over is not None:
            self.done = True
            self.failure = self._log.over if self._to_run() else None
            return rows, None
        return rows, self._blocks() if any(row.failure for row in rows) else None

    def results(self) -> list[list[CellResult]]:
        """Return the table as far as it is known, rows of columns."""
        columns = range(len(self.grid.columns))
        return [
            [self._result(row * len(columns) + column, row * len(columns)) for column in columns]
            for row in range(len(self.grid.rows))
        ]

    def _blocks(self) -> tuple[Block, ...]:
        grid, missing = self.grid, set(self._to_run())
        return tuple(
            Block(
                number=number,
                changes=grid.levers(cell),
                min_steps=grid.min_steps,
                min_s=grid.min_s,
            )
            for number, (turn, cell) in self._numbers.items()
            if (turn, cell) in missing
        )

    def _to_run(self) -> list[tuple[int, int]]:
        """Return the rounds and cells that this training has still to run, in their order."""
        return [one for one in self._missing() if self.grid.nproc(one[1]) == self.nproc]

    def _missing(self) -> Iterator[tuple[int, int]]:
        """Yield all that are still to be run."""
        orders = round_order(self.grid.cells, self.grid.rounds, self.grid.seed)
        for turn, order in enumerate(orders):
            for cell in order:
                if (turn, cell) not in self._known and cell not in self.failures:
                    yield turn, cell

    def _take(self, outcome: Outcome) -> BlockRow | None:
        """Keep what came of a block; None for a cell that has failed before."""
        turn, cell = self._numbers[outcome.number]
        if isinstance(outcome, Measured):
            row = BlockRow(
                round=turn,
                cell=cell,
                steps=outcome.steps,
                samples=outcome.samples,
                busy_s=outcome.busy_s,
                host_ms=outcome.host_ms,
                util_pct=outcome.util_pct,
                cpu_pct=outcome.cpu_pct,
                core_wait_pct=outcome.core_wait_pct,
            )
        elif cell not in self.failures:
            row = BlockRow(round=turn, cell=cell, failure=outcome.reason, failure_kind=outcome.kind)
        else:
            return None
        self._keep(row)
        return row

    def _keep(self, row: BlockRow) -> None:
        if row.failure is None:
            self._known[row.round, row.cell] = row
        else:
            self.failures[row.cell] = row

    def _result(self, cell: int, base: int) -> CellResult:
        own, first = self._rounds(cell), self._rounds(base)
        failed = self.failures.get(cell)
        failure = failed.failure if failed else None
        out_of_memory = failed is not None and failed.failure_kind == "out_of_memory"
        busy_s = sum(row.busy_s or 0 for row in own.values())
        if not busy_s:
            return CellResult(failure=failure, out_of_memory=out_of_memory)
        steps = sum(row.steps or 0 for row in own.values())
        pairs = [
            (first[turn].ms_per_sample, row.ms_per_sample)
            for turn, row in own.items()
            if turn in first
        ]
        costs = [(a, b) for a, b in pairs if a is not None and b is not None]
        return CellResult(
            steps_per_s=steps / busy_s,
            samples_per_s=sum(row.samples or 0 for row in own.values()) / busy_s,
            host_ms=mean(row.host_ms for row in own.values()),
            util_pct=mean(row.util_pct for row in own.values()),
            cpu_pct=mean(row.cpu_pct for row in own.values()),
            core_wait_pct=mean(row.core_wait_pct for row in own.values()),
            change=estimate(costs) if costs and cell != base else None,
            efficiency=self._efficiency(cell),
            failure=failure,
            out_of_memory=out_of_memory,
        )

    def _efficiency(self, cell: int) -> Ratio | None:
        count = self.grid.nproc(cell)
        if count in (None, 1):
            return None
        alone = self.grid.changes(cell) | {NPROC: "1"}
        cells = range(self.grid.cells)
        base = next((one for one in cells if self.grid.changes(one) == alone), cell)
        own, first = self._parts(cell), self._parts(base)
        rates = rate(first), rate(own)
        if base == cell or count is None or rates[0] is None or rates[1] is None:
            return None
        found = ratio(rates[0], rates[1], spread_of_blocks(first), spread_of_blocks(own))
        low, high = (None if end is None else end / count for end in (found.low, found.high))
        return Ratio(ratio=found.ratio / count, low=low, high=high)

    def _parts(self, cell: int) -> list[Part]:
        """Return the samples of a cell's blocks, and how long they took."""
        rows = self._rounds(cell).values()
        return [Part(row.samples, row.busy_s) for row in rows if row.samples and row.busy_s]

    def _rounds(self, cell: int) -> dict[int, BlockRow]:
        return {turn: row for (turn, one), row in sorted(self._known.items()) if one == cell}
