"""Write the reference of all metrics from their table.

python docs/make_metrics.py
"""

from pathlib import Path

from gpudash.metrics import KINDS, METRICS, Metric

PAGE = Path(__file__).parent / "reference" / "metrics.md"
TITLES = {
    "run": "Row",
    "step": "Steps",
    "phase": "Phases of a step",
    "input": "Input",
    "gpu": "GPU",
    "host": "Training processes",
    "own": "gpudash itself",
}
OVER_TIME = {
    "last": "last",
    "sum": "sum",
    "rate": "a second of the row",
    "mean": "mean",
    "p50": "median",
    "p95": "95th percentile",
    "difference": "difference of a counter",
    "union": "all seen",
}
WINDOWS = {
    "utilisation": " A mean over up to 1 s before it is read.",
    "activity": " A mean over the second before it is read.",
}
HEAD = """\
# Metrics

Made from `gpudash/metrics.py` by `make reference`. The CSV's columns have the order of that table.
What was not measured is an empty cell in the CSV and `–` on screen. Under “over time” stands what
becomes of several values within a row of the CSV or a point of a chart, under “CSV” the number of
decimals; a metric without has no column.
"""


def reference() -> str:
    """Return the page."""
    sections = []
    for kind, meaning in KINDS.items():
        rows = [_row(name, metric) for name, metric in METRICS.items() if metric.kind == kind]
        table = (
            "| name | unit | what it is | over time | CSV | chart |\n|---|---|---|---|---|---|\n"
        )
        sections.append(f"\n## {TITLES[kind]}\n\n{meaning}\n\n{table}{''.join(rows)}")
    return HEAD + "".join(sections)


def _row(name: str, metric: Metric) -> str:
    cells = (
        f"`{name}`",
        metric.unit,
        metric.meaning + (WINDOWS[metric.window] if metric.window else ""),
        OVER_TIME[metric.over_time],
        "" if metric.csv is None else str(metric.csv),
        ", ".join(filter(None, (metric.chart, "sparkline" if metric.spark else ""))),
    )
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
