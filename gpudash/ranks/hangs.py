"""Detect hangs: since when no rank has finished a step, where each rank is, and who is missing."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from gpudash import format as fmt
from gpudash.protocol.commands import Stacks
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.inspections import Joined, Stack
from gpudash.protocol.training import Progress, State
from gpudash.ranks.stacks import BACKWARD, collective, doing, frames
from gpudash.snapshot import Hang, RankStack

KeyT = TypeVar("KeyT")

LEAST_S = 10.0
"""A hang is suspected after this many seconds without a step, and …"""
STEPS = 20
"""… after this many usual step times."""
FIRST_STEP = 3
"""The first step after a start or a change may take this multiple of `LEAST_S`: it may compile."""
AGAIN_S = 30.0
"""Seconds between two requests for stacks while a hang lasts."""
SMOOTHING = 1 / 16
"""Weight of the newest step in the usual step time."""
MOST_NAMED = 3
"""Most ranks, and most groups of ranks, that are named one by one."""
PLURALS = {"is": "are", "has": "have", "does": "do", "waits": "wait", "compiles": "compile"}


@dataclass
class _Rank:
    state: State | None = None
    stack: RankStack | None = None

    @property
    def has_parted(self) -> bool:
        return self.state is not None and self.state.phase == "parted"

    @property
    def stands(self) -> bool:
        return self.state is not None and self.state.phase in ("paused", "parted")

    @property
    def on_gpu(self) -> bool:
        process = self.state.process if self.state is not None else None
        return process is not None and process.device.kind == "cuda"


class Hangs:
    """Suspects hangs from the envelopes of all ranks, folded in order of arrival."""

    def __init__(self, least_s: float = LEAST_S) -> None:
        self._least_s = least_s
        self._ranks: dict[int, _Rank] = {}
        self._begin()

    def _begin(self) -> None:
        self._ranks.clear()
        self.newest_s: float | None = None
        """When the last step ended or training began; None if unknown."""
        self._usual_s: float | None = None  # smoothed step time
        self._requested_s: float | None = None

    def take(self, envelope: Envelope) -> None:
        body = envelope.body
        match body:
            case Stacks():
                self._requested_s = envelope.sent_s
            case State(phase="starting" | "finished" | "stopped"):
                self._begin()
            case State(phase="failed"):
                if envelope.rank == 0:
                    self._begin()
            case State() | Progress() | Stack():
                self._fold_rank(self._ranks.setdefault(envelope.rank, _Rank()), envelope.rank, body)

    def wants_stacks(self, now_s: float) -> bool:
        if self._for_s(now_s) is None:
            return False
        return self._requested_s is None or now_s - self._requested_s >= AGAIN_S

    def hang(self, now_s: float) -> Hang | None:
        for_s = self._for_s(now_s)
        if for_s is None:
            return None
        ranks = sorted(self._ranks.items())
        stacks = tuple(rank.stack for _, rank in ranks if rank.stack is not None)
        if all(rank.has_parted for rank in self._ranks.values() if rank.stack is not None):
            stacks = ()  # the running ranks have not answered yet
        absent, recorded = _recorded(stacks)
        return Hang(
            for_s=for_s, missing=absent or missing(stacks), stacks=stacks, recorded=recorded
        )

    def _for_s(self, now_s: float) -> float | None:
        if self.newest_s is None or all(rank.stands for rank in self._ranks.values()):
            return None
        for_s = now_s - self.newest_s
        if self._usual_s is None:
            return for_s if for_s >= FIRST_STEP * self._least_s else None
        return for_s if for_s >= max(self._least_s, STEPS * self._usual_s) else None

    def _fold_rank(self, rank: _Rank, number: int, body: object) -> None:
        match body:
            case State():
                self._turn(rank, number, body)
            case Progress():
                for step in body.steps:
                    self._note_progress(step.finished_s)
                    step_s = step.step_ms / 1000
                    usual_s = step_s if self._usual_s is None else self._usual_s
                    self._usual_s = usual_s + SMOOTHING * (step_s - usual_s)
            case Stack():
                rank.stack = _rank_stack(number, rank, body)

    def _turn(self, rank: _Rank, number: int, state: State) -> None:
        rank.state = state
        if state.phase == "parted":
            rank.stack = RankStack(rank=number, doing="has ended")
        if state.phase == "training":
            self._note_progress(state.at_s)
        if {"starts", "changes"} & {*state.turns}:
            self._usual_s = None
        if state.process is not None and "starts" in state.turns:
            self._forget_from(state.process.world_size)

    def _forget_from(self, world_size: int) -> None:
        left = self._ranks.items()
        self._ranks = {n: one for n, one in left if n < world_size or not one.has_parted}

    def _note_progress(self, at_s: float) -> None:
        if self.newest_s is not None and at_s <= self.newest_s:
            return
        self.newest_s, self._requested_s = at_s, None
        for rank in self._ranks.values():
            if rank.stack is not None and not rank.has_parted:
                rank.stack = None


def _rank_stack(number: int, rank: _Rank, message: Stack) -> RankStack:
    found = frames(message.text)
    waits_in = collective(found)
    return RankStack(
        rank=number,
        lines=tuple(map(str, found)),
        is_known=message.is_known,
        # on a GPU a backward pass hands its collectives over and goes on
        collective="" if rank.on_gpu and waits_in == BACKWARD else waits_in,
        doing=doing(found) if found else message.why or "does not tell where it is",
        joined=message.joined,
    )


def missing(stacks: Sequence[RankStack]) -> tuple[int, ...]:
    """Return the ranks in no collective, or in another one than the majority.

    On a GPU the host does not wait in collectives. There, they are elsewhere than the majority.
    """
    known = [one for one in stacks if one.is_known]
    absent = [one.rank for one in known if not one.collective]
    if 0 < len(absent) < len(known):
        return tuple(absent)
    lines = [one.collective or one.doing for one in known]
    functions = [one.collective or one.doing.rpartition(":")[0] for one in known]
    for places in (lines, functions):
        for most, count in Counter(places).most_common(1):
            if 2 * count > len(known):
                ranks = zip(known, places, strict=True)
                return tuple(one.rank for one, place in ranks if place != most)
    return ()


def _recorded(stacks: Sequence[RankStack]) -> tuple[tuple[int, ...], str]:
    """Return the ranks that have not joined a collective, and a clause."""
    found = awaited({one.rank: one.joined for one in stacks if one.joined})
    if found is None:
        return (), ""
    if not found.absent:
        is_whole = all(one.joined for one in stacks)
        return (), f"all ranks{'' if is_whole else ' that tell'} have joined {found.collective}"
    clause = f"is in {found.instead} instead of" if found.instead else "has not joined"
    said = _conjugated(len(found.absent), f"{clause} {found.collective}")
    return found.absent, f"{_names(found.absent)} {said}"


# ── in words ────────────────────────────────────────────────────────────────────────────


def title(hang: Hang) -> str:
    whose = "no rank has finished a step" if len(hang.stacks) > 1 else "no step"
    return f"{whose} for {hang.for_s:.0f} s"


def clauses(hang: Hang) -> tuple[str, ...]:
    if len(hang.stacks) == 1:
        return (f"it {fmt.plain(hang.stacks[0].doing)}",)
    recorded = filter(None, (fmt.plain(hang.recorded),))
    if not hang.missing:
        return (*recorded, *_group_clauses(hang.stacks, "all ranks"))
    absent = [one for one in hang.stacks if one.rank in hang.missing]
    others = [_waiting(one) for one in hang.stacks if one.rank not in hang.missing]
    return (*recorded, *_group_clauses(absent, ""), *_group_clauses(others, "the others"))


def _waiting(stack: RankStack) -> RankStack:
    """Describe a backward pass as waiting: other ranks are not in it."""
    if stack.collective != BACKWARD:
        return stack
    return replace(stack, doing=stack.doing.replace("is in", "waits in", 1))


def log_lines(hang: Hang) -> Iterator[str]:
    """Yield a line for each call; equal stacks appear once."""
    yield ": ".join(filter(None, (title(hang), ", ".join(clauses(hang)))))
    for lines, ranks in _grouped(hang.stacks, lambda one: one.lines):
        if lines:
            yield f"{_names(ranks)}:" if len(hang.stacks) > 1 else "its calls, innermost first:"
            yield from (f"  {fmt.plain(line)}" for line in lines)


def _group_clauses(stacks: Sequence[RankStack], all_of_them: str) -> Iterator[str]:
    groups = _grouped(stacks, lambda one: one.doing)
    for doing_, ranks in groups[:MOST_NAMED]:
        is_all = len(groups) == 1 and len(ranks) > 1 and all_of_them
        yield f"{all_of_them if is_all else _names(ranks)} {_conjugated(len(ranks), doing_)}"
    if left := sum(len(ranks) for _, ranks in groups[MOST_NAMED:]):
        yield f"{left:,} more are elsewhere"


def _conjugated(count: int, clause: str) -> str:
    verb, _, rest = fmt.plain(clause).partition(" ")
    if count == 1:
        return f"{verb} {rest}"
    return f"{PLURALS.get(verb, verb)} {rest.replace('its loader', 'their loader')}"


def _names(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > MOST_NAMED + 1:
        named, last = ranks[:MOST_NAMED], f"{len(ranks) - MOST_NAMED} more"
    else:
        named, last = ranks[:-1], str(ranks[-1])
    return f"ranks {', '.join(map(str, named))} and {last}"


def _grouped(
    stacks: Iterable[RankStack], key: Callable[[RankStack], KeyT]
) -> list[tuple[KeyT, list[int]]]:
    groups: dict[KeyT, list[int]] = defaultdict(list)
    for one in stacks:
        groups[key(one)].append(one.rank)
    return list(groups.items())


UNNAMED = ("", "undefined", "default_pg")
"""PyTorch's names for a process group that the script has not named."""


class Awaited(NamedTuple):
    """A collective that has not completed."""

    collective: str
    absent: tuple[int, ...]
    """Ranks of its group that have not joined it, or that have joined another one instead."""
    instead: str
    """The other collective; empty if they joined none."""


def awaited(by_rank: Mapping[int, Sequence[Joined]]) -> Awaited | None:
    """Return the oldest collective that has not completed; None if all have.

    Prefer one whose absent ranks wait in no collective: other groups wait for those ranks.
    """
    groups: dict[str, dict[int, Joined]] = defaultdict(dict)
    for rank, ones in by_rank.items():
        for one in ones:
            groups[one.group][rank] = one
    idle = {rank for rank, ones in by_rank.items() if all(one.waits_in is None for one in ones)}
    found = [one for one in map(_of_group, groups.values()) if one is not None]
    return max(found, key=lambda one: (bool(one.absent), idle.issuperset(one.absent)), default=None)


def _of_group(ranks: Mapping[int, Joined]) -> Awaited | None:
    numbers = [one.waits_in for one in ranks.values() if one.waits_in is not None]
    if not numbers:
        return None
    number = min(numbers)
    inside = {rank: one for rank, one in ranks.items() if one.waits_in == number}
    (most, _), *others = Counter(one.collective for one in inside.values()).most_common()
    first = next(one for one in inside.values() if one.collective == most)
    absent = tuple(sorted(rank for rank, one in ranks.items() if one.newest < number))
    instead = ""
    if others and not absent:
        absent = tuple(sorted(rank for rank, one in inside.items() if one.collective != most))
        instead = inside[absent[0]].collective
    return Awaited(_described(first), absent, instead)


def _described(one: Joined) -> str:
    size = "" if one.mib is None else f" ({fmt.memory(one.mib) if one.mib >= 1 else '< 1 MiB'})"
    group = "" if one.group_name in UNNAMED else f" of {one.group_name}"
    return f"{one.collective} #{one.waits_in:,}{group}{size}"
