"""Where each number on the screen comes from, by the table of metrics."""

import textwrap
from collections.abc import Iterator

from gpudash.metrics import METRICS, UTIL_WINDOW_S, Metric
from gpudash.ranks.recent import NOW_S
from gpudash.snapshot import Snapshot
from gpudash.tui.charts.axes import TimeView
from gpudash.tui.charts.sparklines import quantity, value_of

WIDTH = 72
INDENT = "    "
NOW = TimeView()


def origin_lines(snapshot: Snapshot) -> Iterator[str]:
    """Yield each number that is shown, with its meaning, what measures it, and over what time."""
    for name, metric in METRICS.items():
        label = metric.label or metric.spark or (name if metric.chart else "")
        if label:
            yield f"{label}: {quantity(name, value_of(snapshot, name, NOW))}"
            text = f"{metric.meaning} Measured by {metric.measured_by}. {_over(metric)}"
            yield from textwrap.wrap(
                text.strip(), WIDTH, initial_indent=INDENT, subsequent_indent=INDENT
            )


def _over(metric: Metric) -> str:
    """Return what time the number is about."""
    window = {
        "utilisation": f"Each reading is a mean over up to {UTIL_WINDOW_S:g} s before it.",
        "activity": "Each reading is a mean since the one before.",
        None: "",
    }[metric.window]
    if metric.kind == "step" and metric.in_steps == "some":
        return f"The mean of some steps in the last {NOW_S:g} s. {window}".strip()
    if metric.over_time == "mean" and metric.kind in ("gpu", "host", "step", "phase"):
        return f"The mean of the last {NOW_S:g} s. {window}".strip()
    return window or "The newest reading."
