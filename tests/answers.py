"""Blocks as they are asked for, and which events answer what was asked: of a worker or a script."""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from gpudash.protocol.commands import Block, Blocks
from gpudash.protocol.envelope import Event
from tests.lives import name_of, turns


def blocks(
    number: int,
    run: int,
    *changes: dict[str, str],
    min_steps: int = 3,
    min_s: float = 0.0,
    wall_clock: Literal["instrumented", "uninstrumented"] | None = None,
) -> Blocks:
    """The command `number`: a block for each of the changes."""
    made = [
        Block(number=i, changes=one, min_steps=min_steps, min_s=min_s, wall_clock=wall_clock)
        for i, one in enumerate(changes)
    ]
    return Blocks(id=number, run=run, blocks=tuple(made))


def answered_by(events: Iterable[Event]) -> dict[int, list[str]]:
    """Return what answers each command, as in `lives.turns`."""
    named: dict[int, list[str]] = {}
    for name, event in turns(events):
        for number, count in Counter(getattr(event, "answers", ())).items():
            named.setdefault(number, []).extend([name] * count)
    return named


def check(answers: dict[int, list[str]], expected: dict[int, type[Event] | str | None]) -> None:
    """Check that each command is answered once by its number, and how; None: however."""
    assert {number: len(names) for number, names in answers.items()} == dict.fromkeys(expected, 1)
    for number, kind in expected.items():
        assert kind is None or answers[number] == [name_of(kind)], answers[number]
