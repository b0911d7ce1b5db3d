"""Write docs/reference: what the program says of itself, as pages.

python docs/make_reference.py
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from unittest.mock import patch

from gpudash.cli.schema import DOCUMENTS, record
from gpudash.cli.verbs import VERBS, load
from gpudash.errors import Exit
from gpudash.metrics import KINDS, METRICS, Metric
from gpudash.sinks import exported
from gpudash.sinks.exported import Exported
from gpudash.tui.keys import (
    GROUPS,
    KEYS,
    PLAYER_KEYS,
    SHOWN,
    TIMELINE_KEYS,
    Key,
)
from gpudash.workload_levers import SHARED
from workloads import CATALOGUE
from workloads.levers import Lever
from workloads.standard_levers import PROCESSES

FOLDER = Path(__file__).parent / "reference"
MADE = "Made from the program by `make reference`."
DEFAULTS = {"num_workers": "as many as usable cores, 8 at most"}
"""Defaults that depend on the machine, in words."""
WIDTH = 80
"""Columns of a terminal that helps are shown for."""
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
    "rate": "per second",
    "mean": "mean",
    "p50": "median",
    "p95": "95th percentile",
    "difference": "difference of a counter",
    "union": "all of them",
}
COLUMNS = ("name", "unit", "what it is", "over time", "CSV", "chart")
OF_RANKS = ("step", "phase")
"""Kinds of metrics that each rank has of its steps."""
OF_STEPS = ("steps", "ranks")
"""Further columns of these."""
LAST = ("exported", "measured by", "uncertainty")
"""The last columns."""
WINDOWS = {
    "utilisation": " Mean over up to 1 s before the reading.",
    "activity": " Mean over the second before the reading.",
}
METRICS_HEAD = f"""\
# Metrics

{MADE}

- What was not measured is an empty cell in the CSV and `–` on screen.
- “Over time” says how several values become one, in a row of the CSV or a point of a chart.
- “CSV” is the number of decimals, or says whole numbers, text or pairs (`name=value;name=value`). A
  metric without it has no column.
- “Steps” says whether each step has a value, or two of each 100 ms.
- “Ranks” says what several processes have together: rank 0's value, the sum of all, or one value,
  which stands in rank 0's row of the CSV alone.
- “Exported” is the name in Prometheus, and OpenTelemetry's unit. [Exporters](../guide/exporters.md)
  tells more.
"""
BESIDE_HEAD = """
## What is exported besides

| exported | what it is |
|---|---|
"""
COMMANDS_HEAD = f"""\
# Command line

{MADE}
"""
CSV_HEAD = f"""\
# The CSV

{MADE}

There is one row for each interval (`--interval`, 0.5 s) and GPU. Where several processes train
together there is one for each interval and rank, with that rank's GPU. Numbers are plain decimals,
the text is UTF-8, lines end with `\\n`. An empty cell was not measured. New columns are added only
at the end.

- To get the rate of a setting, divide the sum of `steps` without `untimed_steps` by the sum of
  `train_s` of its rows. A row without training has no rate: its cells are empty. With
  several GPUs and one rank, count the rows of one of them.
- With several ranks, the row of rank 0 has `steps`, `steps_per_s` and `train_s`. They are the whole
  job's: all ranks train a step together. In the rows of the others they are empty, so a sum over
  all rows counts no step twice.
- `step`, `samples_per_s`, `tokens_per_s`, `loss`, the times of a step and the GPU are each rank's
  own. The sum of `samples_per_s` over the ranks is the whole job's rate.
- `cpu_pct`, `worker_rss_mib` and `core_wait_pct` are each rank's own too. Those of rank 0 are read
  five times a second, those of the others once. So of two rows of half a second, one has none.
- What a training process tells of its device memory, its loader and its collectives is its own too.
- A row also ends when the settings change. A switch of 10 ms or more has rows of its own, with
  `steps=0`.
- Utilisation and activity are means over up to a second. They are empty if that second began before
  the row's settings.

| column | unit | what it is |
|---|---|---|
"""
KEYS_HEAD = f"""\
# Keys of the dashboard

{MADE}

The palette (`Ctrl+P`) has every action too, and the mouse reaches all of them. `?` shows the keys
of the focused panel first.
"""
TIMELINE_HEAD = """
## In a profile

| key | does |
|---|---|
"""
LEVERS_HEAD = f"""\
# Workloads and levers

{MADE}

“Takes effect” says when a running training uses a new value.
"""
SEVERAL = """
## Every workload, with `--nproc N`

They say how several processes average their gradients. [Several GPUs](../guide/several_gpus.md)
tells more.

"""
ANY_TRAINING = """
## Any training, of your own too

These are levers of the process that trains.

"""
SCHEMAS_HEAD = f"""\
# JSON documents

{MADE}

Each document has a `schema_version`. It is raised when a reader of older documents would misread a
new one. `gpudash schema NAME` prints the JSON Schema.

| name | what it is |
|---|---|
"""


def command_line() -> str:
    """Return the page of verbs and exit codes."""
    parts = [COMMANDS_HEAD]
    with patch.dict(os.environ, COLUMNS=str(WIDTH)):
        for name in ("", *VERBS):
            parser = load(name).parser()
            parts.append(f"\n## `{parser.prog}`\n\n```\n{parser.format_help()}```\n")
    rows = [f"| {code.value} | {code.meaning} |\n" for code in Exit]
    parts.append(f"\n## Exit codes\n\n| code | meaning |\n|---|---|\n{''.join(rows)}")
    return "".join(parts)


def csv_columns() -> str:
    """Return the page of the CSV's columns, in their order."""
    columns = [(name, metric) for name, metric in METRICS.items() if metric.csv is not None]
    rows = [f"| `{name}` | {metric.unit} | {metric.meaning} |\n" for name, metric in columns]
    return CSV_HEAD + "".join(rows)


def keys() -> str:
    """Return the page of keys: the dashboard's by group, a recording's, the timeline's."""
    parts = [KEYS_HEAD]
    for group, title in GROUPS.items():
        parts.append(f"\n## {title}\n\n{_keys(key for key in KEYS if key.group == group)}")
    parts.append(f"\n## In a replay\n\n{_keys(PLAYER_KEYS)}")
    rows = [f"| {_pressed(key)} | {key.help} |\n" for key in TIMELINE_KEYS]
    return "".join([*parts, TIMELINE_HEAD, *rows])


def _pressed(key: Key) -> str:
    return " ".join(f"`{SHOWN.get(name, name)}`" for name in key.keys.split(","))


def _keys(keys: Iterable[Key]) -> str:
    rows = [f"| {_pressed(key)} | {key.help} |\n" for key in keys]
    return f"| key | does |\n|---|---|\n{''.join(rows)}"


def levers() -> str:
    """Return the page of workloads and levers: what they share, then what each has of its own."""
    entries = CATALOGUE.values()
    first, *others = (dict.fromkeys(entry.levers) for entry in entries)
    shared = [lever for lever in first if all(lever in other for other in others)]
    parts = [LEVERS_HEAD, "\n## Every workload\n\n", _levers(shared)]
    for entry in entries:
        parts.append(f"\n## `{entry.name}`\n\n{entry.summary} Source: {entry.source}\n\n")
        parts.append(_levers([lever for lever in entry.levers if lever not in shared]))
    return "".join([*parts, SEVERAL, _levers(PROCESSES), ANY_TRAINING, _levers(SHARED)])


def schemas() -> str:
    """Return the page of JSON documents."""
    rows = []
    for name in DOCUMENTS:
        what = (record(name).__doc__ or "").partition("\n")[0]
        rows.append(f"| `{name}` | {what} |\n")
    return SCHEMAS_HEAD + "".join(rows)


def _levers(levers: Iterable[Lever]) -> str:
    head = "| lever | values | default | takes effect | what it does |\n|---|---|---|---|---|\n"
    rows = [
        f"| `{lever.name}` | {lever.valid} | {DEFAULTS.get(lever.name, lever.default_text)} "
        f"| {lever.effect} "
        f"| {lever.summary} Source: {lever.source} |\n"
        for lever in levers
    ]
    return head + "".join(rows)


def metrics() -> str:
    """Return the page of all metrics."""
    sections = []
    for kind, meaning in KINDS.items():
        rows = [_row(name, metric) for name, metric in METRICS.items() if metric.kind == kind]
        titles = [*COLUMNS, *(OF_STEPS if kind in OF_RANKS else ()), *LAST]
        table = f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}\n"
        sections.append(f"\n## {TITLES[kind]}\n\n{meaning}\n\n{table}{''.join(rows)}")
    beside = [f"| {_exported(one)} | {one.help} |\n" for one in exported.BESIDE]
    return "".join([METRICS_HEAD, *sections, BESIDE_HEAD, *beside])


def _row(name: str, metric: Metric) -> str:
    cells = [
        f"`{name}`",
        metric.unit,
        metric.meaning + (WINDOWS[metric.window] if metric.window else ""),
        OVER_TIME[metric.over_time],
        "" if metric.csv is None else str(metric.csv),
        ", ".join(filter(None, (metric.chart, "sparkline" if metric.spark else ""))),
    ]
    if metric.kind in OF_RANKS:
        cells += [metric.in_steps or "", metric.over_ranks]
    cells += [_exported(exported.exported(name, metric)), metric.measured_by, metric.uncertainty]
    return f"| {' | '.join(cells)} |\n"


def _exported(one: Exported) -> str:
    if one.beside == "@":
        return "time of each value"
    if not one.name:
        return f"label `{one.beside.replace('.', '_')}`"
    labels = "".join(f'{{{name}="{value}"}}' for name, value in one.labels)
    return f"`{one.sample}{labels}`" + (f", {one.unit.ucum}" if one.unit.ucum else "")


PAGES: dict[str, Callable[[], str]] = {
    "command-line.md": command_line,
    "csv.md": csv_columns,
    "keys.md": keys,
    "levers.md": levers,
    "metrics.md": metrics,
    "schemas.md": schemas,
}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
