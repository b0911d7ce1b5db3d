"""The rows of the levers panel: value, requested value, and measurements of this run."""

import msgspec

from gpudash.offers import refusal
from gpudash.tui import wording
from gpudash.tui.control import Control
from gpudash.tui.values import fitting
from workloads.levers import AUTO, Lever


class LeverRow(msgspec.Struct, frozen=True, kw_only=True):
    """A lever as the panel shows it."""

    lever: Lever
    value: str
    """The active value; before a start, the planned one."""
    pending: str | None
    """The requested value that is not active yet."""
    acts: bool = True
    """Whether it has an effect on this device."""
    refusal: str | None = None
    """Why it cannot be changed in this training."""
    keeps_weights: bool = False
    """Whether a change keeps the weights, as in a user's script."""
    default: str | None = None
    """The default; None if the value is the default."""
    result: str = ""
    """Result of the newest A/B of the lever: `on +16.9 % [+16.5, +17.3]`; empty without one."""
    context: str = ""
    """Conditions of that A/B: value A, pairs, and levers that differ from now."""
    forecast: str = ""
    """The batch size that would fit in device memory; empty if unknown."""


def lever_rows(control: Control) -> tuple[LeverRow, ...]:
    """Return a row for each lever."""
    active, wanted, snapshot = control.active, control.wanted, control.snapshot
    newest = {shown.lever: shown for shown in snapshot.verdicts}

    def row(lever: Lever) -> LeverRow:
        name = lever.name
        value, default = active.get(name, lever.default_text), control.default_of(lever)
        left_to_auto = default == AUTO == snapshot.requested.get(name, AUTO)
        shown = newest.get(name)
        return LeverRow(
            lever=lever,
            value=value,
            pending=wanted[name] if wanted.get(name) != active.get(name) else None,
            acts=control.acts(name),
            refusal=refusal(name, snapshot.levers),
            keeps_weights=bool(snapshot.levers),
            default=None if left_to_auto or value == default else default,
            result=wording.result_of(shown) if shown else "",
            forecast=str(fitting(lever, active, snapshot) or ""),
            context=wording.context(shown, active) if shown else "",
        )

    return tuple(map(row, control.levers))
