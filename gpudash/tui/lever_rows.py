"""The levers as rows: what each is set to, what is asked for, and what this run knows of it."""

from collections.abc import Iterable, Mapping

import msgspec

from gpudash.offers import refusal
from gpudash.snapshot import Snapshot
from gpudash.tui import wording
from gpudash.tui.values import fitting
from gpudash.views.remedies import CUDA_ONLY
from workloads.levers import AUTO, Lever


class LeverRow(msgspec.Struct, frozen=True, kw_only=True):
    """A lever as the panel shows it."""

    lever: Lever
    value: str
    """Active, or about to be where nothing runs."""
    pending: str | None
    """Asked for and not active yet."""
    acts: bool = True
    """Whether it can do anything on this device."""
    refusal: str | None = None
    """Why it cannot be moved in this training."""
    keeps_weights: bool = False
    """A script's training goes on with its weights, whatever is built anew."""
    default: str | None = None
    """What it would be by default; None where it is."""
    said: str = ""
    """What the newest A/B of it has found: `on +16.9 % [+16.5, +17.3]`; empty without one."""
    context: str = ""
    """Of that A/B: against what, and what was set otherwise than it is now."""
    forecast: str = ""
    """Which batch would fit in device memory, where two that were measured tell."""


def lever_rows(
    levers: Iterable[Lever],
    active: Mapping[str, str],
    wanted: Mapping[str, str],
    defaults: Mapping[str, str],
    snapshot: Snapshot,
    *,
    on_cpu: bool,
) -> tuple[LeverRow, ...]:
    """Return a row for each lever; `defaults` are those of this device."""
    newest = {shown.lever: shown for shown in snapshot.verdicts}

    def row(lever: Lever) -> LeverRow:
        name = lever.name
        value, default = active.get(name, lever.default_text), defaults[name]
        left_to_auto = default == AUTO == snapshot.requested.get(name, AUTO)
        shown = newest.get(name)
        return LeverRow(
            lever=lever,
            value=value,
            pending=wanted[name] if wanted.get(name) != active.get(name) else None,
            acts=not (on_cpu and name in CUDA_ONLY),
            refusal=refusal(name, snapshot.levers),
            keeps_weights=bool(snapshot.levers),
            default=None if left_to_auto or value == default else default,
            said=wording.said(shown) if shown else "",
            forecast=str(fitting(lever, active, snapshot) or ""),
            context=wording.context(shown, active) if shown else "",
        )

    return tuple(map(row, levers))
