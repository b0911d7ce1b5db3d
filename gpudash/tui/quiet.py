"""Quiet numbers: what is measured changes on screen at most every two seconds.

An answer stays until another one is found. What the user does, and what happens to the training,
is shown at once, with the newest numbers.
"""

from typing import Any

import msgspec

from gpudash.protocol.answer import Answer
from gpudash.snapshot import Snapshot

QUIET_S = 2.0
NUMBERS = (
    "total_steps",
    "total_samples",
    "loss",
    "samples_per_s",
    "steps_per_s",
    "tokens_per_s",
    "step_ms_p50",
    "step_ms_p95",
    "instruments_ms",
    "unattributed_pct",
    "gpu",
    "host",
    "other_jobs",
    "series",
    "results",
)
"""The fields of a snapshot that are measured anew all the time."""


class Quiet:
    """Holds the numbers of a snapshot until they may change."""

    def __init__(self) -> None:
        self._shown = self._answered = Snapshot()

    @property
    def answer(self) -> Answer | None:
        """The last answer of this training; None before the first one."""
        return self._answered.answer

    @property
    def estimated(self) -> Answer | None:
        """The last answer, if it is of the present settings: its estimates hold."""
        return self.answer if self._answered.settings == self._shown.settings else None

    def of(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot, with the numbers that were shown last if those are new enough."""
        shown = self._shown
        begins = snapshot.state == "starting" or snapshot.workload != self._answered.workload
        if snapshot.answer is not None or begins:
            self._answered = snapshot
        is_new = 0 < snapshot.elapsed_s - shown.elapsed_s < QUIET_S and shown.total_steps > 0
        if snapshot.playback is None and is_new and _event(snapshot) == _event(shown):
            held: dict[str, Any] = {name: getattr(shown, name) for name in NUMBERS}
            return msgspec.structs.replace(snapshot, **held)
        self._shown = snapshot
        return snapshot


def _event(snapshot: Snapshot) -> tuple[object, ...]:
    """Return what changes when something has happened; the blocks of an A/B are no event."""
    shown = snapshot.comparison
    if shown is not None and not shown.is_over:
        moves = snapshot.state in ("training", "switching")
        return (snapshot.workload, shown.lever, moves or snapshot.state, snapshot.quiet_s is None)
    return (
        snapshot.workload,
        snapshot.state,
        snapshot.status,
        snapshot.settings,
        snapshot.pending,
        len(snapshot.markers),
        len(snapshot.results),
        len(snapshot.verdicts),
        snapshot.answer is None,
        snapshot.quiet_s is None,
        snapshot.hang is None,
        len(snapshot.ranks),
    )
