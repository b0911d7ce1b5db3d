"""Conduct a sweep: every cell of a table once per round, in random order.

The other columns of a row are compared with the first, round by round, so drift between rounds
cancels. Each number of processes is a training of its own, so scaling is estimated between two
trainings, one after the other (`unpaired_t.py`).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol

import msgspec

from gpudash.compare.blocks import READINGS, MeasuredBlock, Outcome
from gpudash.compare.experiment import Experiment
from gpudash.compare.paired_t import estimate, round_order
from gpudash.compare.unpaired_t import Ratio, RunPart, ratio, spread_of_blocks
from gpudash.errors import RecordingError, UsageError
from gpudash.protocol.commands import Block
from gpudash.protocol.envelope import Event
from gpudash.protocol.readings import Reading
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Progress, RefusalKind, State
from gpudash.statistics import geometric, mean

NPROC = "nproc"
"""A row's setting for the number of processes, beside its levers."""


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a sweep, and the length of its blocks."""

    rows: tuple[Settings, ...]
    columns: tuple[Settings, ...]
    rounds: int
    min_steps: int
    min_s: float
    seed: int = 0

    def changes(self, cell: int) -> Settings:
        row, column = divmod(cell, len(self.columns))
        return self.rows[row] | self.columns[column]

    def levers(self, cell: int) -> Settings:
        return {name: value for name, value in self.changes(cell).items() if name != NPROC}

    def nproc(self, cell: int) -> int | None:
        named = self.changes(cell).get(NPROC)
        return None if named is None else int(named)

    @property
    def counts(self) -> list[int]:
        found = dict.fromkeys(self.nproc(cell) for cell in range(self.cells))
        return [count for count in found if count is not None]

    @property
    def cells(self) -> int:
        return len(self.rows) * len(self.columns)

    @property
    def named(self) -> frozenset[str]:
        return frozenset(name for one in (*self.rows, *self.columns) for name in one)

    @property
    def varied(self) -> frozenset[str]:
        """Settings that every cell has, so that their defaults do not matter."""
        return frozenset.intersection(
            *(frozenset(self.changes(cell)) for cell in range(self.cells))
        )


class BlockRow(msgspec.Struct, frozen=True, kw_only=True):
    """One measured block of a sweep, or the failure of its cell."""

    round: int
    cell: int
    steps: int | None = None
    samples: int | None = None
    busy_s: float | None = None
    host_ms: float | None = None
    gpu_util_pct: float | None = None
    cpu_pct: float | None = None
    core_wait_pct: float | None = None
    failure: str | None = None
    failure_kind: RefusalKind | None = None
    """None also in older files, like `core_wait_pct`."""

    @property
    def refused(self) -> bool:
        return self.failure_kind == "bad_setting"

    @property
    def ms_per_sample(self) -> float | None:
        return self.busy_s * 1e3 / self.samples if self.busy_s and self.samples else None


def whole_rounds(grid: Grid, rows: Sequence[BlockRow]) -> list[BlockRow]:
    """Keep complete rounds, as one training has to measure all blocks of one; and failures."""
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


class SettingResult(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of the table as data. None = not measured."""

    settings: Settings
    """The levers that make this setting."""
    steps_per_s: float | None
    samples_per_s: float | None
    """Both are geometric means over the rounds that all settings of the row have."""
    change: float | None
    """Throughput against the first setting of its row, as a share: 0.1 is 10 % faster."""
    low: float | None
    high: float | None
    """The change's 95 % interval."""
    gpu_util_pct: float | None
    cpu_pct: float | None
    """Percent of one core."""
    host_ms: float | None
    """Host time of a step."""
    core_wait_pct: float | None
    failure: str | None
    """Why it could not be measured."""
    out_of_memory: bool
    """Whether it failed for want of device memory."""
    efficiency: float | None = None
    """Samples/s over those of one process times the number of processes; None for one process."""
    efficiency_low: float | None = None
    efficiency_high: float | None = None
    """Its 95 % interval."""


class RowFile(Protocol):
    """Keeps a sweep's blocks as they are measured. Its methods raise RecordingError."""

    @property
    def skipped_samples(self) -> int | None: ...

    def started_on(self, state: State) -> None:
        """Raise UsageError if the blocks so far have other circumstances."""

    def append(self, row: BlockRow) -> None: ...

    def note_skipped(self, samples: int | None) -> None: ...


class Sweep(Experiment):
    """Runs a grid, except for rounds that an earlier run has measured."""

    name = "sweep"

    def __init__(
        self, grid: Grid, known: Iterable[BlockRow] = (), file: RowFile | None = None
    ) -> None:
        super().__init__()
        self.grid, self._file = grid, file
        self._known: dict[tuple[int, int], BlockRow] = {}
        self.failures: dict[int, BlockRow] = {}
        """Failed blocks, by cell: these cells are not run again."""
        for row in known:
            self._keep(row)
        self._numbers: dict[int, tuple[int, int]] = {}
        self._has_failed = False  # a cell, since the worker was told what to run
        self._skipped_before = (file.skipped_samples if file else None) or 0
        self.skipped_samples = self._skipped_before
        """Unreadable samples, including earlier runs'."""
        self.nproc = self.next_nproc
        """The number of processes of the cells that are run now; None if no row sets it."""
        self.state: State | None = None
        """The worker's state when the blocks began."""
        self.refusal: str | None = None
        """Why it was not begun: the file's blocks have other circumstances."""

    @property
    def rows(self) -> list[BlockRow]:
        return [*self._known.values(), *self.failures.values()]

    @property
    def blocks_done(self) -> int:
        return self.blocks_planned - len(list(self._missing()))

    @property
    def blocks_planned(self) -> int:
        return self.grid.cells * self.grid.rounds

    @property
    def next_nproc(self) -> int | None:
        left = {self.grid.nproc(cell) for _, cell in self._missing()}
        return next((count for count in self.grid.counts if count in left), None)

    @property
    def following(self) -> "Sweep | None":
        """The sweep of the next number of processes, if all went well and there is one."""
        if self.next_nproc is None or self.failure is not None or self.refusal is not None:
            return None
        sweep = Sweep(self.grid, self.rows, self._file)
        sweep._skipped_before = sweep.skipped_samples = self.skipped_samples
        return sweep

    @property
    def refusals(self) -> list[str]:
        """Why no cell can be run, each reason once; empty if any can."""
        rows = self.failures.values()
        if len(rows) < self.grid.cells or self._known or not all(row.refused for row in rows):
            return []
        return list(dict.fromkeys(row.failure for row in rows if row.failure is not None))

    def begin(self, state: State, run: int, /) -> tuple[Block, ...]:
        self.state = state
        self._numbers = dict(enumerate(self._to_run()))
        try:
            if self._file is not None:
                self._file.started_on(state)
        except UsageError as error:
            self.refusal = str(error)
        except RecordingError as error:
            self.failure = str(error)
        goes = self._numbers and self.refusal is None and self.failure is None
        blocks = super().begin(state, run) if goes else ()
        self.done = not blocks
        return blocks

    def shown(self) -> None:
        """Return None: a sweep is not shown on the dashboard."""

    def _first(self, _state: State, _run: int) -> tuple[Block, ...]:
        return self._blocks()

    def _note(self, item: Event | Reading) -> None:
        if isinstance(item, Progress):
            self.skipped_samples = self._skipped_before + item.skipped_samples

    def _next(self) -> tuple[Block, ...] | None:
        has_failed, self._has_failed = self._has_failed, False
        return self._blocks() if has_failed else None

    def _end_early(self, reason: str) -> None:
        self.failure = reason if self._to_run() else None

    def results(self) -> list[list[SettingResult]]:
        columns = range(len(self.grid.columns))
        return [
            [self._result(row * len(columns) + column, row * len(columns)) for column in columns]
            for row in range(len(self.grid.rows))
        ]

    def _blocks(self) -> tuple[Block, ...]:
        grid, missing = self.grid, set(self._to_run())
        return tuple(
            Block(
                number=number, changes=grid.levers(cell), min_steps=grid.min_steps, min_s=grid.min_s
            )
            for number, (turn, cell) in self._numbers.items()
            if (turn, cell) in missing
        )

    def _to_run(self) -> list[tuple[int, int]]:
        return [one for one in self._missing() if self.grid.nproc(one[1]) == self.nproc]

    def _missing(self) -> Iterator[tuple[int, int]]:
        orders = round_order(self.grid.cells, self.grid.rounds, self.grid.seed)
        for turn, order in enumerate(orders):
            for cell in order:
                if (turn, cell) not in self._known and cell not in self.failures:
                    yield turn, cell

    def _take(self, outcome: Outcome) -> None:
        turn, cell = self._numbers[outcome.number]
        if isinstance(outcome, MeasuredBlock):
            row = BlockRow(
                round=turn,
                cell=cell,
                steps=outcome.steps,
                samples=outcome.samples,
                busy_s=outcome.busy_s,
                host_ms=outcome.values.get("host_ms"),
                gpu_util_pct=outcome.values.get("gpu_util_pct"),
                cpu_pct=outcome.values.get("cpu_pct"),
                core_wait_pct=outcome.values.get("core_wait_pct"),
            )
        elif cell not in self.failures:
            row = BlockRow(round=turn, cell=cell, failure=outcome.reason, failure_kind=outcome.kind)
            self._has_failed = True
        else:
            return
        self._keep(row)
        try:
            if self._file is not None:
                self._file.append(row)
                self._file.note_skipped(self.skipped_samples)
        except RecordingError as error:
            self.failure = str(error)

    def _keep(self, row: BlockRow) -> None:
        if row.failure is None:
            self._known[row.round, row.cell] = row
        else:
            self.failures[row.cell] = row

    def _result(self, cell: int, base: int) -> SettingResult:
        own, first = self._rounds(cell), self._rounds(base)
        failed, rows = self.failures.get(cell), own.values()
        pairs = [
            (first[turn].ms_per_sample, row.ms_per_sample)
            for turn, row in own.items()
            if turn in first
        ]
        costs = [(a, b) for a, b in pairs if a is not None and b is not None]
        found = estimate(costs) if costs and cell != base else None
        scaled = self._efficiency(cell)
        return SettingResult(
            settings=self.grid.changes(cell),
            steps_per_s=_rate(rows, "steps"),
            samples_per_s=_rate(rows, "samples"),
            change=found.change if found else None,
            low=found.low if found else None,
            high=found.high if found else None,
            failure=failed.failure if failed else None,
            out_of_memory=failed is not None and failed.failure_kind == "out_of_memory",
            efficiency=scaled.ratio if scaled else None,
            efficiency_low=scaled.low if scaled else None,
            efficiency_high=scaled.high if scaled else None,
            host_ms=geometric(row.host_ms for row in rows if row.host_ms is not None),
            **{name: mean(getattr(row, name) for row in rows) for name in READINGS},
        )

    def _efficiency(self, cell: int) -> Ratio | None:
        count = self.grid.nproc(cell)
        if count in (None, 1):
            return None
        alone = self.grid.changes(cell) | {NPROC: "1"}
        cells = range(self.grid.cells)
        base = next((one for one in cells if self.grid.changes(one) == alone), cell)
        own, first = self._parts(cell), self._parts(base)
        rates = tuple(_rate(self._rounds(one).values(), "samples") for one in (base, cell))
        if base == cell or count is None or rates[0] is None or rates[1] is None:
            return None
        found = ratio(rates[0], rates[1], spread_of_blocks(first), spread_of_blocks(own))
        low, high = (None if end is None else end / count for end in (found.low, found.high))
        return Ratio(ratio=found.ratio / count, low=low, high=high)

    def _parts(self, cell: int) -> list[RunPart]:
        rows = self._rounds(cell).values()
        return [RunPart(row.samples, row.busy_s) for row in rows if row.samples and row.busy_s]

    def _rounds(self, cell: int) -> dict[int, BlockRow]:
        """Leave out rounds that any measured cell of the row lacks."""
        across, own = len(self.grid.columns), self._timed(cell)
        first = cell - cell % across
        beside = [self._timed(one) for one in range(first, first + across) if one != cell]
        shared = set(own).intersection(*filter(None, beside))
        return {turn: own[turn] for turn in sorted(shared)}

    def _timed(self, cell: int) -> dict[int, BlockRow]:
        return {
            turn: row
            for (turn, one), row in self._known.items()
            if one == cell and row.busy_s and one not in self.failures
        }


def _rate(rows: Iterable[BlockRow], of: Literal["steps", "samples"]) -> float | None:
    counted = ((getattr(row, of), row.busy_s) for row in rows)
    return geometric(count / busy_s if count and busy_s else None for count, busy_s in counted)
