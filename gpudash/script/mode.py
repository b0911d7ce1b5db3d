"""How steps are measured now: one of a few modes, which change between two steps only."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Mode:
    """What is done with the step in progress."""

    is_on: bool
    """Steps are measured, or first findings are awaited."""
    is_timed: bool
    """The clock measures it."""
    is_skipping: bool
    """It is only counted, as those after it are until one is due to be measured."""
    wants_calls: bool
    """The training calls of models are reported. Of skipped steps, all others are."""


FIRST = Mode(is_on=True, is_timed=False, is_skipping=False, wants_calls=False)
IN_FULL = Mode(is_on=True, is_timed=True, is_skipping=False, wants_calls=True)
IN_PART = replace(IN_FULL, is_timed=False)
"""The step had begun before."""
TOGETHER = Mode(is_on=True, is_timed=True, is_skipping=True, wants_calls=False)
"""Timed with those after it, whose begins their batches show, …"""
TOGETHER_BY_CALLS = replace(TOGETHER, wants_calls=True)
"""… or the calls of models."""
UNWATCHED = Mode(is_on=False, is_timed=False, is_skipping=False, wants_calls=False)
COUNTED = replace(UNWATCHED, is_skipping=True)
