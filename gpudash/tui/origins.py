"""Where each number on the screen comes from, by the table of metrics."""

import textwrap
from collections.abc import Iterator

from gpudash.metrics import METRICS, UTIL_WINDOW_S, Metric
from gpudash.ranks.recent import NOW_S
from gpudash.snapshot import Snapshot
from gpudash.tui.charts.axes import TimeView, latest
from gpudash.tui.charts.sparklines import quantity

WIDTH = 72
INDENT = "    "
NOW = TimeView()


def origin_lines(snapshot: Snapshot) -> Iterator[str]:
    """Yield each number that is shown, with its meaning, what measures it, and over what time."""
    for name, metric in METRICS.items():
        label = metric.label or metric.spark or (name if metric.chart else "")
        if label:
            yield f"{label}: {quantity(name, _value(snapshot, name, metric))}"
            text = f"{metric.meaning} Measured by {metric.measured_by}. {_over(metric)}"
            yield from textwrap.wrap(
                text.strip(), WIDTH, initial_indent=INDENT, subsequent_indent=INDENT
            )


def _value(snapshot: Snapshot, name: str, metric: Metric) -> float | str | None:
    source = {"gpu": snapshot.gpu, "host": snapshot.host}.get(metric.kind)
    if source is not None:
        return source.values.get(name)
    if metric.kind == "run":
        found = {"steps_per_s": snapshot.steps_per_s, "samples_per_s": snapshot.samples_per_s}
        return found.get(name)
    return latest(snapshot.series, name)


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
