"""A/Bs as snapshots: in progress after so many pairs, and with a verdict."""

from msgspec.structs import replace as changed

from gpudash.metrics import COMPARED
from gpudash.protocol.session import ComparisonShown
from tests.tui.fake_engine import training

SIDES = {"steps_per_s": (277.0, 295.0), "host_ms": (2.1, 2.2)}
VERDICT = "pipelined=off is 6.3 % faster [5.9, 6.8], 40 pairs, control passed"


def closing_in(pairs=20):
    """Return intervals around +6 %, the first ones very wide."""
    return tuple((0.06 - 0.8 / n**2, 0.06, 0.06 + 1.6 / n**2) for n in range(5, pairs + 1))


def compared(pairs=20, **values):
    """A comparison in progress after so many pairs."""
    history = closing_in(pairs)
    low, change, high = history[-1] if history else (None, 0.06 if pairs else None, None)
    shown = ComparisonShown(
        lever="pipelined",
        a="on",
        b="off",
        pairs=pairs,
        planned_pairs=40,
        change=change,
        low=low,
        high=high,
        history=history,
        sides=SIDES,
        verdict=None,
        failure=None,
    )
    return judged_as(shown, **values)


def judged_as(shown, **values):
    """Change fields, and values of both sides by metric."""
    sides = {name: values.pop(name) for name in COMPARED if name in values}
    return changed(shown, sides=shown.sides | sides, **values)


def comparing(pairs=20, **values):
    return changed(training(), comparison=compared(pairs, **values))


CONCLUDED = comparing(40, verdict=VERDICT)


def text_of(rows):
    return ["".join(text for text, _ in parts) for parts in rows]
