"""The names by which metrics go to other programs, each with its unit, from the table of metrics.

Names are OpenTelemetry's: `hw.*` where its conventions name a value of a device, and DCGM's words
for activity, else the metric's own name without its unit. OpenMetrics has the same by the rules of
OpenTelemetry: `hw.power` in watts is `hw_power_watts`. All values are in base units.
"""

from typing import NamedTuple, TypeAlias

from gpudash.metrics import METRICS, Metric

Labels: TypeAlias = tuple[tuple[str, str], ...]


class Unit(NamedTuple):
    """What becomes of a metric's unit."""

    suffix: str
    """What the names of metrics in it end with."""
    ucum: str
    """The base unit in OpenTelemetry …"""
    word: str
    """… and in OpenMetrics, where names end with it; empty without one."""
    scale: float = 1.0
    """How many base units one unit is."""


UNITS: dict[str, Unit] = {
    "": Unit("", "", ""),
    "%": Unit("_pct", "1", "ratio", 0.01),
    "J": Unit("_j", "J", "joules"),
    "MHz": Unit("_mhz", "Hz", "hertz", 1e6),
    "MiB": Unit("_mib", "By", "bytes", 2.0**20),
    "MiB/s": Unit("_mib_s", "By/s", "bytes_per_second", 2.0**20),
    "W": Unit("_w", "W", "watts"),
    "ms": Unit("_ms", "s", "seconds", 1e-3),
    "s": Unit("_s", "s", "seconds"),
    "samples/s": Unit("_per_s", "{sample}", ""),
    "steps/s": Unit("_per_s", "{step}", ""),
    "tokens/s": Unit("_per_s", "{token}", ""),
    "°C": Unit("_c", "Cel", "celsius"),
}
"""Every unit of the table of metrics."""


class Exported(NamedTuple):
    """A family of values with one name."""

    name: str
    """OpenTelemetry's; empty if the metric is a label or the time of other values."""
    help: str
    unit: Unit = UNITS[""]
    is_counter: bool = False
    """Whether it only grows while the training lasts."""
    labels: Labels = ()
    """Labels that all its values have."""
    text: str = ""
    """The label that holds the value if that is text: the number is then 1."""
    beside: str = ""
    """What the metric is if it has no name: the label of other values, or `@` for their time."""

    @property
    def sample(self) -> str:
        name, word = self.name.replace(".", "_"), self.unit.word
        if word and not name.endswith(f"_{word}"):
            name = f"{name}_{word}"
        return f"{name}_total" if self.is_counter else name


def exported(name: str, metric: Metric | None) -> Exported:
    if metric is None or metric.kind == "phase":
        return PHASES._replace(labels=(("phase", name.removesuffix("_ms")),))
    if metric.exported.startswith(("{", "@")):
        return Exported("", metric.meaning, beside=metric.exported.strip("{}"))
    unit = UNITS[metric.unit]
    own = f"gpudash.{name.removesuffix(unit.suffix)}"
    is_pairs = metric.csv == "pairs" and metric.unit == ""  # of settings
    text = "value" if is_pairs else name if metric.csv == "text" else ""
    return Exported(
        metric.exported or (f"{own}.info" if text else own),
        _help(metric),
        unit,
        metric.over_time in COUNTED or metric.in_steps is not None,
        text=text,
    )


def _help(metric: Metric) -> str:
    if metric.over_time == "rate":
        return metric.meaning.replace(" per second.", ".")
    more = (
        " Sum over all steps." if metric.in_steps else " 1 is 100 %." if metric.unit == "%" else ""
    )
    return metric.meaning + more


COUNTED = ("sum", "rate", "difference")
"""How what is counted becomes a row's value; a sum of time over steps is counted too."""
PHASES = Exported("gpudash.phase", "Time of the phases of all steps.", UNITS["ms"], is_counter=True)
LAST_STEP = Exported(
    "gpudash.last_step.timestamp", "When the newest step finished, since 1970.", UNITS["s"]
)
LIMIT = Exported("gpudash.limit.info", "What limits the training: the newest answer.", text="limit")
TRAINING = Exported("gpudash.training.info", "What the training does.", text="state")
GPU = Exported("gpudash.gpu.info", "A GPU that is read.", text="hw.model")
BESIDE = (LAST_STEP, LIMIT, TRAINING, GPU)
"""What is exported besides the table of metrics."""
EXPORTED: dict[str, Exported] = {}


def of(name: str) -> Exported:
    if name not in EXPORTED:
        EXPORTED[name] = exported(name, METRICS.get(name))
    return EXPORTED[name]
