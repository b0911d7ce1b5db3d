"""A sweep's table as a picture. The only place that imports matplotlib, an optional extra."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from gpudash.analysis.sweep import CellResult, Grid
from gpudash.errors import RecordingError, UsageError
from gpudash.recording.files import reason, shown
from gpudash.tables import label

SUFFIXES = (".svg", ".png")


def check(path: Path) -> None:
    """Raise UsageError if no picture can be drawn there."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"--plot {shown(path)} is not valid; valid: a name ending in .svg or .png")
    if find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib: pip install 'gpudash[plot]'")


def draw(path: Path, title: str, grid: Grid, results: Sequence[Sequence[CellResult]]) -> None:
    """Draw throughput in samples/s, a group of bars for each row. Raises RecordingError."""
    from matplotlib.figure import Figure  # noqa: PLC0415  # half a second, for this alone

    figure = Figure(figsize=(2 + 1.2 * len(grid.rows) + 0.4 * len(grid.columns), 4.5))
    axes = figure.add_subplot()
    width = 0.8 / len(grid.columns)
    for column, settings in enumerate(grid.columns):
        rates = [row[column].samples_per_s or 0.0 for row in results]
        at = [index + (column + 0.5) * width - 0.4 for index in range(len(grid.rows))]
        bars = axes.bar(at, rates, width, label=label(settings, grid.columns))
        if column:
            texts = [_change(row[column]) for row in results]
            axes.bar_label(bars, texts, fontsize=7, rotation=90, padding=3)
    axes.set_xticks(range(len(grid.rows)), [label(row, ()) for row in grid.rows])
    axes.set_ylabel("samples/s")
    axes.set_title(title, fontsize=9)
    axes.margins(y=0.25)
    axes.legend(fontsize=7)
    figure.tight_layout()
    try:
        figure.savefig(path)
    except OSError as error:
        raise RecordingError(f"cannot write {shown(path)}: {reason(error)}") from error


def _change(result: CellResult) -> str:
    return "" if result.change is None else f"{result.change.change * 100:+.1f} %"
