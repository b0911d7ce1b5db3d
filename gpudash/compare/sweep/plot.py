"""Plot a sweep's table: with matplotlib, an optional extra, or as bars in a terminal."""

from collections.abc import Sequence
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

from gpudash import format as fmt
from gpudash.compare.rate_bars import rate_bars
from gpudash.compare.sweep.file import writing
from gpudash.compare.sweep.grid import Grid, SettingResult
from gpudash.compare.sweep.table import label, pairs, why_not
from gpudash.errors import UsageError
from gpudash.output_file import replace_file
from gpudash.recording.files import shown

SUFFIXES = (".svg", ".png")


def check(path: Path) -> None:
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--plot {shown(path)} is not valid; valid: a name ending in .svg or .png")
    if find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib: pip install 'gpudash[plot]'")


def draw(path: Path, title: str, grid: Grid, results: Sequence[Sequence[SettingResult]]) -> None:
    """Draw a group of bars for each row. Raises RecordingError."""
    from matplotlib.figure import Figure  # noqa: PLC0415  # takes half a second

    figure = Figure(figsize=(8, 2 + 0.2 * (grid.cells + len(grid.columns))), layout="constrained")
    axes = figure.add_subplot()
    thick = 0.8 / len(grid.columns)
    for column, settings in enumerate(grid.columns):
        rates = [row[column].samples_per_s or 0.0 for row in results]
        at = [index + (column + 0.5) * thick - 0.4 for index in range(len(grid.rows))]
        drawn = axes.barh(at, rates, thick, label=label(settings, grid.columns))
        axes.bar_label(drawn, [_note(row[column]) for row in results], fontsize=7, padding=3)
    axes.set_yticks(range(len(grid.rows)), [pairs(row) for row in grid.rows])
    axes.invert_yaxis()  # top to bottom, as in the table
    axes.margins(x=0.3)  # room for the notes beside the bars
    axes.set_xlabel("samples/s")
    axes.set_title(title, fontsize=9, wrap=True)
    figure.legend(loc="outside lower left", fontsize=7)
    file = BytesIO()
    figure.savefig(file, format=path.suffix[1:].lower())
    with writing(path):
        replace_file(path, file.getvalue())


def bars(grid: Grid, results: Sequence[Sequence[SettingResult]], columns: int) -> str:
    """Empty without two settings that were measured."""
    rates = {
        pairs(row | column): result.samples_per_s
        for row, of_row in zip(grid.rows, results, strict=True)
        for column, result in zip(grid.columns, of_row, strict=True)
        if result.samples_per_s is not None
    }
    return rate_bars(rates, "samples/s", columns)


def _note(result: SettingResult) -> str:
    if result.failure is not None:
        return why_not(result)
    if result.samples_per_s is None:
        return fmt.ABSENT
    return "" if result.change is None else fmt.change(result.change, result.low, result.high)
