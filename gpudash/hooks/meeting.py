"""When all ranks of a training meet, and what rank 0 then says: they switch at the same step.

A rank that is asked to change levers goes on until the step that travels with the command. Blocks
need no message between them: where a block begins, rank 0 says at which step they meet next, and
there, whether it has lasted long enough. It counts the steps by the block's pace so far.
"""

import msgspec

from gpudash.protocol import AnyCommand, Block, Blocks, Change, Settings

LATE = "it was heard of after its step"
SPARE = 1.05
"""A block planned so much longer seldom needs more steps at its end."""
MEET_EVERY_S = 2.0
"""At least, also in a long block: only where they meet can a run of blocks end."""
GUESS_S = 0.1
"""A step, before one was timed: shorter ones make a first block too short, which lasts on."""


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """What rank 0 has all ranks do where they meet; one of the three."""

    begin: Block | None = None
    ends: str = ""
    """The run of blocks is over, and why."""
    meet_at: int = 0
    """The block lasts on, until after this step."""

    def encode(self) -> str:
        """Return it as it travels."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> "Order":
        """Return what `encode` made a text of."""
        return msgspec.json.decode(text, type=cls)


class Paces:
    """How long a step takes, under settings that blocks have run with."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, str], ...], float] = {}
        self._newest_s = GUESS_S

    def note(self, settings: Settings, step_s: float | None) -> None:
        """Take what a step has taken under these settings; None: it is not known."""
        if step_s is not None:
            self._newest_s = self._known[_key(settings)] = step_s

    def step_s(self, settings: Settings) -> float:
        """Return what a step takes under these, or took last."""
        return self._known.get(_key(settings), self._newest_s)


def due(command: AnyCommand) -> int | None:
    """Return the step that a command for all ranks waits for; None: it waits for none."""
    return command.at_step if isinstance(command, Change | Blocks) else None


def topic(command: AnyCommand) -> str:
    """Return what its decision is known by; steps count up, and ids within a dashboard."""
    return f"{due(command)}.{command.id}"


def _key(settings: Settings) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(settings.items()))
