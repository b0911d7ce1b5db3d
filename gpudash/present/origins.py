"""Where each number on the screen comes from, by the table of metrics."""

import textwrap
from collections.abc import Iterator
from statistics import fmean, stdev

from gpudash import format as fmt
from gpudash.metrics import METRICS, UTIL_WINDOW_S, Metric
from gpudash.present.axes import TimeView
from gpudash.present.readings import quantity, reading_of, value_of
from gpudash.present.step_time import parts_of
from gpudash.ranks.recent import NOW_S, now
from gpudash.snapshot import Series, Snapshot, Values

WIDTH = 72
INDENT = "    "
NOW = TimeView()
VARIES_TICKS, LEAST_TICKS = 20, 5
"""Ticks whose spread is told, and the fewest that have one."""


def origin_lines(snapshot: Snapshot) -> Iterator[str]:
    phases = {part.metric: part.label for part in parts_of(snapshot)}
    for name, metric in METRICS.items():
        label = phases.get(name) if metric.kind == "phase" else metric.label
        if label:
            yield f"{label}: {_value(snapshot, name, metric)}"
            for what, text in origin(snapshot, name).items():
                said = f"{what}: {text}" if what else text
                yield from textwrap.wrap(
                    said, WIDTH, initial_indent=INDENT, subsequent_indent=2 * INDENT
                )


def _value(snapshot: Snapshot, name: str, metric: Metric) -> str:
    text = quantity(name, value_of(snapshot, name, NOW))
    return f"{text} ms" if metric.unit == "ms" and text != fmt.ABSENT else text


def origin(snapshot: Snapshot, name: str) -> dict[str, str]:
    """Return formula, source, age and uncertainty by these words, the meaning by an empty one."""
    metric = METRICS[name]
    varies = _varies(snapshot, name)
    stretch = now(snapshot.steps_per_s, snapshot.steps_since_break)
    return {
        "": metric.meaning,
        "formula": f"{metric.formula} {_of(metric, stretch)}",
        "source": metric.measured_by,
        "age": _age(snapshot, name, metric),
        "uncertainty": metric.uncertainty + (f"; {varies}" if varies else ""),
    }


def _of(metric: Metric, lately: str) -> str:
    window = {
        "utilisation": f", each a mean over up to {UTIL_WINDOW_S:g} s before it",
        "activity": ", each a mean since the one before",
        None: "",
    }[metric.window]
    if metric.over_time == "last":
        return "that was told"
    if metric.kind in ("gpu", "host", "own", "input"):
        return f"of the readings of the last {NOW_S:g} s{window}"
    which = "some steps, two in each 100 ms" if metric.in_steps == "some" else "steps"
    return f"of {which}, {lately}"


def _age(snapshot: Snapshot, name: str, metric: Metric) -> str:
    reading = reading_of(snapshot, name)
    if reading is not None and name in reading.values:
        slow = ", slow calls up to 1 s before" if metric.window == "activity" else ""
        return f"{max(snapshot.at_s - reading.at_s, 0.0):.1f} s{slow}"
    series = snapshot.series
    ticks = zip(series.at_s, _past(series, name), strict=False)
    newest_s = max((at_s for at_s, value in ticks if fmt.is_measured(value)), default=None)
    if newest_s is None:
        return fmt.ABSENT
    return f"{max(snapshot.elapsed_s - newest_s, 0.0):.1f} s"


def _varies(snapshot: Snapshot, name: str) -> str:
    values = [one for one in _past(snapshot.series, name)[-VARIES_TICKS:] if fmt.is_measured(one)]
    if len(values) < LEAST_TICKS or not fmean(values):
        return ""
    share_pct = 100 * stdev(values) / abs(fmean(values))
    return f"the last {len(values)} values of the chart vary by ± {fmt.significant(share_pct)} %"


def _past(series: Series, name: str) -> Values:
    """Return what the chart has of a metric: of percentiles the steps that they are of."""
    return series.of("step_ms" if name.startswith("step_ms") else name)
