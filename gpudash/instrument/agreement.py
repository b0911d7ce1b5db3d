"""All ranks of a training decide the same, at the border of the same step, through their store.

Nothing of it is a collective: a rank that does not come costs the others their patience, once,
and no hang. It is safe under these conditions:

- A rank waits only between two steps, with nothing of the next one begun. So nobody waits for a
  part of a step that this rank holds back, except for the step after the border.
- All ranks wait at the border of the same step. A rank that waited one step earlier would hold
  up the collective in which another rank has to finish its step before it comes. Therefore the
  number of the step travels with the command.
- A rank that hears of it after that step does not wait: it says no, and goes on.
- A rank that runs out of patience says no too.
- The decision is one key that is written once. "Go" is written by the rank that comes last; "no"
  by whoever refuses or runs out of patience. Whoever is second reads what the first one wrote.
  So all ranks do the same, however late they read it.
- Rank 0 deletes its keys once all ranks have come to a later decision, which was "go": each of
  them is past it. Who comes to it even so had not come before: it was "no", and is "no" again.

The store is asked in short calls alone. `Store.wait` would hold a lock that the watchdog of NCCL
needs too.
"""

import time
from contextlib import suppress
from typing import NamedTuple

from torch.distributed import (  # type: ignore[attr-defined]  # documented, not declared
    DistError,
    PrefixStore,
    Store,
)

PATIENCE_S = 20.0
"""More than a rank takes to try a lever out."""
GROUP = 32
"""Ranks that one number of 64 bits tells of."""
POLLS_PER_S = 20_000
"""By all ranks together, at most: one process answers them all."""
SHORTEST_S, LONGEST_S = 0.0005, 0.02
"""Between two polls of a rank."""
NAMED = 4
"""Missing ranks that are named."""
GO, NO, LATE = "go", "no", "late"
"""Decisions, as the store has them: a word, and more after it."""


class Decision(NamedTuple):
    """What all ranks do."""

    refusal: str | None
    """Why it is not done; None: it is."""
    payload: str = ""
    """What rank 0 has said with it; empty where it is refused."""
    is_late: bool = False
    """A rank heard of it after its step, and refused it for that alone."""


class Agreement:
    """One rank's part in the decisions."""

    def __init__(
        self, store: Store, rank: int, world_size: int, patience_s: float = PATIENCE_S
    ) -> None:
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._patience_s = patience_s
        self._left: list[str] = []  # topics that rank 0 has come to, whose keys are there

    def decide(
        self, topic: str, refusal: str | None, payload: str = "", *, is_late: bool = False
    ) -> Decision:
        """Return what is decided; wait for the other ranks unless this one refuses.

        A topic is decided once. Every rank names it alike, and comes to it at the same step, or
        refuses it because it `is_late`.
        """
        store = self._keys(topic)
        try:
            if refusal is not None:  # in its own words here, with its name elsewhere
                _write(store, f"{LATE if is_late else NO} rank {self._rank}: {refusal}")
                return Decision(refusal, is_late=is_late)
            decision = self._decide(store, payload)
        except DistError:  # the process that keeps the store has ended
            why = refusal or "the store of the process group does not answer"
            return Decision(why, is_late=is_late)
        if self._rank == 0:
            with suppress(RuntimeError):  # it is decided, whatever becomes of the keys
                self._tidy(topic, all_have_come=decision.refusal is None)
        return decision

    def _keys(self, topic: str) -> Store:
        return PrefixStore(f"gpudash/{topic}", self._store)

    def _tidy(self, topic: str, *, all_have_come: bool) -> None:
        """Delete the keys of decisions that all ranks are past.

        What rank 0 has refused itself is not among them: others may be still to come to it.
        """
        done = self._left if all_have_come else []
        self._left = [topic] if all_have_come else [*self._left, topic]
        groups = [f"group {number}" for number in range(self._groups)]
        for one in done:
            for key in ("decision", "payload", "groups", *groups):
                self._keys(one).delete_key(key)

    def _decide(self, store: Store, payload: str) -> Decision:
        if self._rank == 0:
            store.set("payload", payload)
        if self._is_last(store):
            return _read(_write(store, f"{GO} {store.get('payload').decode()}"))
        began_s = time.monotonic()
        while not store.check(["decision"]):
            waited_s = time.monotonic() - began_s
            if waited_s > self._patience_s:
                return _read(_write(store, f"{NO} {self._missing(store)}"))
            least_s = max(SHORTEST_S, self._world_size / POLLS_PER_S)
            time.sleep(max(least_s, min(waited_s / 10, LONGEST_S)))
        return _read(store.get("decision"))

    def _is_last(self, store: Store) -> bool:
        """Note that this rank has come; tell whether all have."""
        group, place = divmod(self._rank, GROUP)
        if store.add(f"group {group}", 1 << place) != self._all_of(group):
            return False
        return bool(store.add("groups", 1) == self._groups)

    @property
    def _groups(self) -> int:
        return -(-self._world_size // GROUP)

    def _all_of(self, group: int) -> int:
        return (1 << min(GROUP, self._world_size - group * GROUP)) - 1

    def _missing(self, store: Store) -> str:
        """Return a clause on the ranks that have not come."""
        missing = []
        for first in range(0, self._world_size, GROUP):
            come = store.add(f"group {first // GROUP}", 0)
            here = range(first, min(first + GROUP, self._world_size))
            missing += [str(rank) for rank in here if not come >> rank - first & 1]
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        which = f"rank{'s' * (len(missing) > 1)} {', '.join(missing[:NAMED])}{more}"
        return f"{which} did not answer within {self._patience_s:g} s"


def _write(store: Store, decision: str) -> bytes:
    """Decide, unless that was done; return the decision."""
    decided: bytes = store.compare_set("decision", "", decision)
    return decided


def _read(decision: bytes) -> Decision:
    word, _, text = decision.decode().partition(" ")
    return Decision(None, text) if word == GO else Decision(text, is_late=word == LATE)
