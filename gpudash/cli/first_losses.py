"""Short starts of a training, a lever at A and at B, for the losses of their first steps.

A lever acts from the first step on; in a script, from the one after which all levers are known.
"""

import argparse
from collections.abc import Iterator
from typing import Self

from msgspec.structs import replace

from gpudash.cli.headless import News
from gpudash.cli.measure import PATIENCE_S, AskedTraining, Course, measure
from gpudash.cli.stdout import complain
from gpudash.compare.alternation import alone
from gpudash.compare.losses import LossesFound, compare_losses
from gpudash.errors import UsageError
from gpudash.format import plain
from gpudash.protocol.training import SCRIPT
from gpudash.run.session import Session
from gpudash.snapshot import Snapshot

A, B = 0, 1
FEWEST = (B, A, A)
"""The sides of the starts: they may show that all are alike. A value that cannot be had shows at
once."""
IF_SOME_DIFFER = (B, A, B)
"""The starts that follow then. With two of a side a loss would have to move by 80 of its spreads,
with three by 11; and where each start chooses one of two kernels, one in 32 seems moved, not one in
eight."""


class _Start(Course):
    """Trains until the losses of the first steps have arrived."""

    patience_s = PATIENCE_S

    def __init__(self, name: str) -> None:
        self._name = name
        self.side, _ = alone()

    def begin(self, session: Session, news: News) -> Self:
        session.conduct(self.side)
        return super().begin(session, news)

    def stages(self) -> Iterator[bool]:
        while not (self.side.has_losses or self.side.refused):
            yield False

    def line(self, _snapshot: Snapshot) -> str:
        return f"{self._name}: losses of the first steps, {len(self.side.losses)} so far"


def compare(
    training: AskedTraining, lever: str, values: tuple[str, str], arguments: argparse.Namespace
) -> LossesFound | int | None:
    """Return an exit code if a start fails; why has been said. Raises UsageError or LeverError.

    None: there are too few losses.
    """
    if training.command is not None:
        most = len(FEWEST) + len(IF_SOME_DIFFER)
        complain(
            f"gpudash: for its losses {training.command.name} will run {len(FEWEST)} to {most} "
            "times before the A/B; the files that it writes are written again each time"
        )
    found: tuple[list[dict[int, float]], list[dict[int, float]]] = ([], [])
    for number, side in enumerate((*FEWEST, *IF_SOME_DIFFER)):
        if number == len(FEWEST) and found[A][0] == found[A][1] == found[B][0]:
            break
        losses = _losses(training, lever, values[side], arguments)
        if isinstance(losses, int):
            return losses
        found[side].append(losses)
    return compare_losses(*found)


def _losses(
    training: AskedTraining, lever: str, value: str, arguments: argparse.Namespace
) -> dict[int, float] | int:
    plan, name = training.plan, f"{lever}={value}"
    if value != SCRIPT:
        plan = replace(plan, settings=plan.settings | {lever: value})
    start = _Start(name)
    ended = measure(training._replace(plan=plan), arguments, start)
    side = start.side
    if side.refused:
        raise UsageError(plain(f"{name} cannot be set from the first step on: {side.refused}"))
    has_trained = side.has_losses or side.losses
    if ended.interrupted or ended.failed is not None or start.failure or not has_trained:
        return ended.without("losses", start.failure, start=name)
    return side.losses
