"""Waits for other processes, and what collectives move."""

from ..instrument.collectives import BytesMoved, together
from .steps import Handlers, Steps


def _gradient_came(steps: Steps) -> None:
    """Note a gradient, on a GPU on autograd's thread, for which the one that trains waits."""
    if steps.follower.backwards:
        steps.meter.mark("backward")


def _is_followed(steps: Steps) -> bool:
    is_here = steps.follower.is_here or steps.follower.backwards > 0
    return steps.meter.mode.is_timed and is_here


def _wait_begins(steps: Steps) -> bool:
    if not _is_followed(steps):
        return False
    steps.follower.waits += 1
    if steps.follower.waits == 1:
        steps.meter.phases.cut()
        steps.meter.mark("communication")
    return True


def _wait_ends(steps: Steps) -> None:
    steps.follower.waits -= 1
    if steps.follower.waits == 0:
        steps.meter.mark("backward" if steps.follower.backwards else steps.meter.phases.phase)


def _collectives_begin(steps: Steps) -> bool:
    steps.meter.borders = []
    return _is_followed(steps) and not steps.meter.mode.is_skipping


def _collectives_are_timed(steps: Steps) -> bool:
    return steps.meter.clock is not None and steps.meter.clock.times_collectives


def _collective_border(steps: Steps) -> None:
    steps.meter.borders.append(steps.meter.running.timestamp())


def _collectives_end(steps: Steps, moved: list[BytesMoved] | None) -> None:
    tally, borders, steps.meter.borders = steps.meter.tally, steps.meter.borders, []
    tally.moved = together((tally.moved, *([None] if moved is None else moved)))
    if moved is None or (moved and len(borders) != len(moved) + 1):
        tally.borders = None
    elif moved and tally.borders is not None:
        tally.borders.append(borders)


HANDLERS: Handlers = {
    "gradients: came": _gradient_came,
    "communication: wait begins": _wait_begins,
    "communication: wait ends": _wait_ends,
    "communication: collectives begin": _collectives_begin,
    "communication: are timed": _collectives_are_timed,
    "communication: border": _collective_border,
    "communication: collectives end": _collectives_end,
}
