"""The levers: their values, requests to change them, and undo.

An edit counts once it is requested, so that two quick keys undo two; a refused one is dropped.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Literal, TypeAlias

import msgspec

from gpudash import format as fmt
from gpudash.errors import UsageError
from gpudash.offers import NEEDS_ROOT, canonical, of_driver
from gpudash.present import wording
from gpudash.present.ledger import LeverRow, MeasuredValue, fitting, measured_values
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Lever
from gpudash.snapshot import Result
from gpudash.tui.run_state import Request, RunState
from workloads.levers import LeverError, find, phrase

MOST_EDITS = 200
Way: TypeAlias = Literal["undo", "redo"]


class Edit(msgspec.Struct, frozen=True):
    """Levers that were set together: their values before and after."""

    before: Settings
    after: Settings

    @property
    def reversed(self) -> "Edit":
        return Edit(self.after, self.before)

    @property
    def label(self) -> str:
        """What it sets in a few words: `pipelined=on`, or `3 levers`."""
        return f"{len(self.after)} levers" if len(self.after) > 1 else phrase(self.after)


class UndoStack:
    """The edits in the order they were made; those after `_applied` are undone."""

    def __init__(self) -> None:
        self._edits: list[Edit] = []
        self._applied = 0

    def made(self, edit: Edit) -> None:
        self._edits = [*self._edits[: self._applied], edit][-MOST_EDITS:]
        self._applied = len(self._edits)

    def next(self, way: Way) -> Edit | None:
        if way == "undo":
            return self._edits[self._applied - 1].reversed if self._applied else None
        return self._edits[self._applied] if self._applied < len(self._edits) else None

    def went(self, way: Way) -> None:
        self._applied += 1 if way == "redo" else -1

    def settle(self, holds: Callable[[Settings], bool]) -> None:
        """Drop refused edits once all requests are answered; `holds` checks present settings."""
        while self._applied and not holds(self._edits[self._applied - 1].after):
            self._drop(self._applied - 1)
        undone = self.next("redo")
        if undone is not None and holds(undone.after):  # the undo was refused
            self._applied += 1

    def _drop(self, index: int) -> None:
        """Remove a refused edit; the next edit then begins with the values before it."""
        dropped = self._edits.pop(index)
        self._applied -= 1
        for following in self._edits[index : index + 1]:
            came_from = {k: v for k, v in dropped.before.items() if k in following.before}
            joined = Edit(following.before | came_from, following.after)
            self._edits[index : index + 1] = [joined] if joined.before != joined.after else []


class OtherNumbersError(UsageError):
    """A lever changes the computed numbers, and the user has not confirmed; the message asks."""


class LeverControl:
    """The workload's levers. An impossible request raises LeverError or UsageError."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._edits = UndoStack()
        self.agreed = False
        """Whether the user has confirmed that numbers change."""

    @property
    def all(self) -> tuple[Lever, ...]:
        return self._run.snapshot.levers

    def lever(self, name: str) -> Lever:
        """Raise LeverError for an unknown name, and UsageError if no levers are known yet."""
        if not self.all:
            self._run.require("levers")
        if name in NEEDS_ROOT:
            raise UsageError(f"{name}: {NEEDS_ROOT[name]}")
        return find(self.all, name)

    # ── values ──────────────────────────────────────────────────────────────────────────

    @property
    def active(self) -> Settings:
        """The active value of every lever; before a start, the planned values."""
        if self._run.snapshot.settings:
            return self._run.snapshot.settings
        planned: Settings = {**self._on_cpu_values, **self._run.plan.settings}
        with suppress(LeverError):  # the engine reports it at the start
            planned = {
                one.name: canonical(one, planned.get(one.name, one.default)) for one in self.all
            }
        return planned

    @property
    def wanted(self) -> Settings:
        """The active values, overridden by open requests."""
        return {**self.active, **self._changes}

    @property
    def _changes(self) -> Settings:
        asked = {name: request.wish for name, request in self._run.asked_levers.items()}
        return {**self._run.snapshot.pending, **asked}

    @property
    def next_start(self) -> Settings:
        """The changes that a restart would make; empty while a worker runs."""
        active = self.active
        return {k: v for k, v in self._changes.items() if self._run.dead and v != active.get(k)}

    @property
    def _on_cpu(self) -> bool:
        device = self._run.snapshot.device
        return device.kind == "cpu" if device is not None else self._run.plan.device == "cpu"

    @property
    def _on_cpu_values(self) -> Settings:
        return {one.name: one.on_cpu for one in self.all if one.on_cpu and self._on_cpu}

    def acts(self, name: str) -> bool:
        """Whether the lever has an effect on this device."""
        return not self._on_cpu or not any(one.needs_gpu for one in self.all if one.name == name)

    def values(self, lever: Lever) -> tuple[MeasuredValue, ...]:
        default = self._on_cpu_values.get(lever.name, lever.default)
        return measured_values(lever, self.value(lever), default, self.active, self._run.snapshot)

    def value(self, lever: Lever) -> str:
        return self.wanted.get(lever.name, lever.default)

    def rows(self) -> tuple[LeverRow, ...]:
        active, wanted, snapshot = self.active, self.wanted, self._run.snapshot
        newest = {shown.lever: shown for shown in snapshot.verdicts}

        def row(lever: Lever) -> LeverRow:
            name = lever.name
            shown = newest.get(name)
            return LeverRow(
                lever=lever,
                value=active.get(name, lever.default),
                pending=wanted[name] if wanted.get(name) != active.get(name) else None,
                default=self._on_cpu_values.get(name, ""),
                acts=self.acts(name),
                keeps_weights=bool(snapshot.found),
                forecast=str(fitting(lever, active, snapshot) or ""),
                context=wording.context(shown, active) if shown else "",
            )

        return tuple(map(row, (*self.all, *of_driver(snapshot.gpu)))) if self.all else ()

    # ── changes ─────────────────────────────────────────────────────────────────────────

    def change(self, lever: Lever, text: str) -> None:
        """Raise LeverError, which lists the valid values."""
        self.set({lever.name: canonical(lever, text)})

    def step(self, name: str, direction: int) -> None:
        self._run.require("levers", name)
        lever = self.lever(name)
        self.change(lever, lever.step(canonical(lever, self.value(lever)), direction))

    def use_row(self, result: Result) -> None:
        self._run.require("levers")
        workload = self._run.workload
        if result.workload != workload:
            raise UsageError(f"setting {result.number} is of {result.workload}, not {workload}")
        if not self.set(result.settings):
            raise UsageError(f"setting {result.number} is set already")

    def set(self, settings: Settings) -> bool:
        """Request these values as one change; return whether any differs from the present one."""
        before = {name: self.value(self.lever(name)) for name in settings}
        after = {name: value for name, value in settings.items() if value != before[name]}
        for name in after:
            self._run.require("levers", name)
        if after:
            self._ask_for(after)
            self._edits.made(Edit({name: before[name] for name in after}, after))
        return bool(after)

    def _ask_for(self, settings: Settings) -> None:
        self.check_numbers(settings)
        number = None if self._run.dead else self._run.engine.change(settings)
        self._run.asked_levers |= {name: Request(number, value) for name, value in settings.items()}

    def check_numbers(self, settings: Mapping[str, str]) -> None:
        """Raise OtherNumbersError if settings change a script's numbers without confirmation."""
        of_script = self._run.snapshot.found and not self.agreed
        for offer in self.all if of_script else ():
            value = settings.get(offer.name, offer.default)
            if offer.numerics and value != offer.default:
                script, setting = fmt.plain(self._run.workload), phrase({offer.name: value})
                raise OtherNumbersError(
                    f"{setting} computes other numbers: the weights of {script} will differ "
                    "from a plain run. Change it?"
                )

    # ── undo ────────────────────────────────────────────────────────────────────────────

    def go(self, way: Way) -> None:
        self._run.require(way)
        edit = self._edits.next(way)
        assert edit is not None, "it is required"
        self._ask_for(edit.after)
        self._edits.went(way)

    def label(self, way: Way) -> str:
        edit = self._edits.next(way)
        return edit.label if edit else ""

    def settle(self) -> None:
        if self._is_settled:
            self._edits.settle(self._holds)

    @property
    def _is_settled(self) -> bool:
        snapshot = self._run.snapshot
        answering = snapshot.state in ("training", "paused")
        return answering and not self._run.is_open(self._run.asked_restart) and not self._changes

    def _holds(self, settings: Settings) -> bool:
        """Return whether these levers have these values, resolved or as requested (`auto`)."""
        snapshot = self._run.snapshot
        return all(
            value in (snapshot.settings.get(name), snapshot.requested.get(name))
            for name, value in settings.items()
        )

    def forget_edits(self) -> None:
        self._edits = UndoStack()
