"""Write current values as text: OpenMetrics, or Prometheus's older format; no I/O."""

from collections.abc import Iterable
from functools import lru_cache

from gpudash.sinks.current import Family
from gpudash.sinks.exported import Exported, Labels

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
CLASSIC = "text/plain; version=0.0.4; charset=utf-8"
"""Content types."""
KEPT = 1 << 12
"""Sets of labels whose text is kept: those of a hundred ranks and GPUs, which all metrics share."""
END = "# EOF\n"
"""The last line of OpenMetrics."""


def openmetrics(families: Iterable[Family]) -> str:
    """Return the values as OpenMetrics."""
    parts = [head(of) + _samples(of.sample, points) for of, points in families]
    return "".join([*parts, END])


def classic(families: Iterable[Family]) -> str:
    """Return the values in the format before OpenMetrics, as the node exporter reads it."""
    return "".join(
        f"# HELP {of.sample} {_help(of)}\n# TYPE {of.sample} {_plain_kind(of)}\n"
        f"{_samples(of.sample, points)}"
        for of, points in families
    )


@lru_cache
def head(of: Exported) -> str:
    """Return the lines before the values of a family."""
    family = of.openmetrics.removesuffix("_info") if of.text else of.openmetrics
    kind = "info" if of.text else _plain_kind(of)
    unit = f"# UNIT {family} {of.unit.word}\n" if of.unit.word else ""
    return f"# TYPE {family} {kind}\n{unit}# HELP {family} {_help(of)}\n"


@lru_cache(KEPT)
def labelled(labels: Labels) -> str:
    """Return labels as they follow a name; empty without any."""
    if not labels:
        return ""
    inside = ",".join(f'{name.replace(".", "_")}="{_escaped(value)}"' for name, value in labels)
    return f"{{{inside}}}"


def number(value: float) -> str:
    """Return a number; a whole one without a fraction."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _samples(name: str, points: Iterable[tuple[Labels, float, float]]) -> str:
    return "".join([f"{name}{labelled(labels)} {number(value)}\n" for labels, value, _ in points])


def _plain_kind(of: Exported) -> str:
    return "counter" if of.is_counter else "gauge"


def _help(of: Exported) -> str:
    return of.help.replace("\\", r"\\").replace("\n", r"\n").replace('"', "'")


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
