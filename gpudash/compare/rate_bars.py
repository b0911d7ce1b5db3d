"""Rates as bars in a terminal, for verbs that compare several settings or runs."""

from collections.abc import Mapping

MOST_COLUMNS = 100


def rate_bars(rates: Mapping[str, float], unit: str, columns: int) -> str:
    """Empty without two that can be compared."""
    if len(rates) < 2:
        return ""
    import plotext  # noqa: PLC0415  # only where a person looks

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.simple_bar([*rates], [*rates.values()], width=min(columns, MOST_COLUMNS))
    return f"{unit}\n{plotext.uncolorize(plotext.build()).rstrip()}"
