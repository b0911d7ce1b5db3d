"""Lets all ranks of a training decide the same at the border of the same step, by their store.

A rank waits only between two steps, with nothing of the next one begun. If it waited a step
earlier, it would hold up the collective in which another rank finishes that step. So the command
carries the number of the step. A rank that gets it later refuses. So does one that runs out of
patience.

The decision is one key that is written once: "go" by the last rank to come, "no" by one that
refuses. Rank 0 deletes the keys of a decision after a later decision was "go": then all ranks have
passed the earlier one. A rank that still comes to it had not come before, so the decision was "no".
It is "no" again.

All calls of the store are short. `Store.wait` would hold a lock that NCCL's watchdog needs too.
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
"""Seconds that a rank waits for the others; trying a lever out takes less."""
GROUP = 32
"""Ranks in one 64-bit number of the store."""
POLLS_PER_S = 20_000
"""Limit for all ranks together, as one process answers all of them."""
SHORTEST_S, LONGEST_S = 0.0005, 0.02
"""Seconds between two polls of a rank."""
NAMED = 4
"""At most so many missing ranks are named."""
GO, NO, LATE = "go", "no", "late"
"""The first word of a decision in the store."""


class Decision(NamedTuple):
    """What all ranks decided."""

    refusal: str | None
    """Why it is refused; None: all ranks do it."""
    payload: str = ""
    """What rank 0 sent with it; empty if refused."""
    is_late: bool = False
    """Refused only because a rank got the command after its step."""


class Agreement:
    """One rank's part in the decisions."""

    def __init__(
        self, store: Store, rank: int, world_size: int, patience_s: float = PATIENCE_S
    ) -> None:
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._patience_s = patience_s
        self._undeleted: list[str] = []  # topics decided on rank 0 whose keys are not deleted yet

    def decide(
        self, topic: str, refusal: str | None, payload: str = "", *, is_late: bool = False
    ) -> Decision:
        """Wait for the other ranks, unless this one refuses.

        A topic is decided once. All ranks come to it at the same step, or refuse it as `is_late`.
        """
        store = self._keys(topic)
        try:
            if refusal is not None:  # the other ranks read this rank's number too
                _write(store, f"{LATE if is_late else NO} rank {self._rank}: {refusal}")
                return Decision(refusal, is_late=is_late)
            decision = self._decide(store, payload)
        except DistError:  # the process that holds the store has ended
            why = refusal or "the store of the process group does not answer"
            return Decision(why, is_late=is_late)
        if self._rank == 0:
            with suppress(RuntimeError):  # the decision holds even if deleting fails
                self._tidy(topic, all_have_come=decision.refusal is None)
        return decision

    def _keys(self, topic: str) -> Store:
        return PrefixStore(f"gpudash/{topic}", self._store)

    def _tidy(self, topic: str, *, all_have_come: bool) -> None:
        """Keep decisions that rank 0 refused at once: other ranks may still come to them."""
        done = self._undeleted if all_have_come else []
        self._undeleted = [topic] if all_have_come else [*self._undeleted, topic]
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
        """Note that this rank has come; return whether all have."""
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
        missing = []
        for first in range(0, self._world_size, GROUP):
            come = store.add(f"group {first // GROUP}", 0)
            here = range(first, min(first + GROUP, self._world_size))
            missing += [str(rank) for rank in here if not come >> rank - first & 1]
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        which = f"rank{'s' * (len(missing) > 1)} {', '.join(missing[:NAMED])}{more}"
        return f"{which} did not answer within {self._patience_s:g} s"


def _write(store: Store, decision: str) -> bytes:
    """Write the decision unless there is one; return the one in the store."""
    decided: bytes = store.compare_set("decision", "", decision)
    return decided


def _read(decision: bytes) -> Decision:
    word, _, text = decision.decode().partition(" ")
    return Decision(None, text) if word == GO else Decision(text, is_late=word == LATE)
