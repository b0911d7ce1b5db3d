"""A sweep's table as bars in a terminal, drawn by plotext."""

from collections.abc import Sequence

from gpudash.compare.sweep.grid import Grid, SettingResult
from gpudash.compare.sweep.table import pairs

MOST_COLUMNS = 100


def drawn(grid: Grid, results: Sequence[Sequence[SettingResult]], columns: int) -> str:
    """Empty without two settings that were measured."""
    rates = {
        pairs(row | column): result.samples_per_s
        for row, of_row in zip(grid.rows, results, strict=True)
        for column, result in zip(grid.columns, of_row, strict=True)
        if result.samples_per_s is not None
    }
    if len(rates) < 2:
        return ""
    import plotext  # noqa: PLC0415  # only where a person looks

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.simple_bar([*rates], [*rates.values()], width=min(columns, MOST_COLUMNS))
    return f"samples/s\n{plotext.uncolorize(plotext.build()).rstrip()}"
