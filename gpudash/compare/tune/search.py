"""The course of a tune: races lever by lever, then the proof. Knows no blocks and no clock.

Coordinate ascent: for each lever the leader races against the lever's other values, and the winner
leads from then on. Levers interact: products of single gains miss by up to a third. So they are
tried again under the new leader, until a pass changes nothing; then combinations of two levers and
more are, until one leads or the time is over.

A leader is optimistic: of several that are about as fast, the one with the luckiest noise leads. So
the result is only what a proof with fresh pairs against the start shows.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, islice, product
from math import fsum, log1p, prod
from typing import NamedTuple, TypeAlias

import msgspec

from gpudash.compare.lengths import FEWEST_LARGE, TUNE_S
from gpudash.compare.paired_t import Estimate, Order, same_setting_check, verdict
from gpudash.compare.sequential import LARGE_TOO, LEAST, estimate_so_far, is_settled
from gpudash.compare.tune.race import Race
from gpudash.compare.tune.tunable import Tunable
from gpudash.protocol.records import Settings
from workloads.levers import phrase

PROOF = 0.25
"""Part of the budget that is at least kept for the proof, …"""
CLEAR, CLEAR_PROOF = 0.2, 0.15
"""… or the second, if the races say that the leader is ahead of the start by the first."""
LATE = 1.1
"""A proof that is not sure yet may last until this multiple of the budget."""
COMPILE = 2.0
"""What compiling may take in all, as a multiple of the budget."""
AT_ONCE = 8
"""Combinations of levers that race against each other."""
MOST_COMBINATIONS = 1000
"""Looked at: those of the fewest levers. No budget suffices for more, and the thread that looks
writes the rows, too."""
FURTHER = 0.05
"""Where a number gains so much, the next ones in that direction are tried at once."""
FEWEST_ROUNDS = 2
MOST_ROUNDS = 40
MOST_PAIRS = 200


class NoCost(msgspec.Struct, frozen=True, kw_only=True):
    """Why a setting has no cost."""

    reason: str
    for_good: bool = False
    """Whether its values are not tried with other settings either."""


Cost: TypeAlias = float | NoCost
"""Ms a sample, or why there are none."""


class Round(NamedTuple):
    """Settings to measure, each once."""

    settings: tuple[Settings, ...]
    """What each changes of the start."""
    short_runs: bool
    """A change from one to the next needs a rebuild: each block is a short run of its own."""
    fresh: bool = False
    """Only blocks that begin from now on count."""


class RoundCosts(NamedTuple):
    """The costs of a round, and in which order they were measured."""

    order: tuple[int, ...]
    costs: Mapping[int, Cost]


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that raced against the leader of then."""

    changes: Settings
    """The levers in which it differed from that leader."""
    before: Settings
    """The values that these had."""
    change: float | None
    """Throughput against the leader, as a share; None if it was not measured."""
    low: float | None
    high: float | None
    rounds: int
    taken: bool = False
    """Whether it led from then on."""
    why_not: str | None = None
    """Why it could not be run."""


class _OpenRace(NamedTuple):
    """A race that may go on; its first setting leads."""

    settings: tuple[Settings, ...]
    race: Race


class Allowance(NamedTuple):
    """How long a tune may take."""

    budget_s: float = TUNE_S
    pairs: int = MOST_PAIRS
    """Most pairs of the proof."""
    spent_s: float = 0.0
    """What of the budget is over when it begins."""


ALLOWANCE = Allowance()


class Search:
    """Decides what is measured next, by what was measured so far."""

    def __init__(
        self,
        start: Settings,
        tunables: Sequence[Tunable],
        allowance: Allowance = ALLOWANCE,
        known: Settings | None = None,
    ) -> None:
        """`known` are changes that an earlier tune found best: only their proof is left."""
        self._start = start
        self._tunables = {one.name: one for one in tunables}
        self._allowance = allowance
        self._known = known
        self._leaders: list[Settings] = [{}]  # the changes of each; the newest leads
        self._lost: set[frozenset[tuple[str, str]]] = set()
        self._barred: set[tuple[str, str]] = set()
        self._condemned: dict[frozenset[tuple[str, str]], NoCost] = {}
        self._open: list[_OpenRace] = []  # those whose time did not suffice
        self._goes_on = False  # whether this pass is over the open races
        self._block_s: dict[bool, float] = {}  # of a setting's block, by whether it is a short run
        self._pairs: list[tuple[float, float]] = []
        self._orders: list[Order] = []
        self.spent_s = allowance.spent_s
        """Seconds of training so far; the experiment sets it."""
        self.compiled_s = 0.0
        """Seconds of compiling so far; the experiment sets it."""
        self._tried: dict[tuple[frozenset[tuple[str, str]], ...], Tried] = {}
        self._races = 0
        self.passes = 0
        """Passes over all levers that were begun."""
        self.racing: str = ""
        """The lever whose values race; empty if none does."""
        self.left: tuple[Settings, ...] = ()
        """Of the race: what may still win."""
        self.is_proving = False
        self._ends = False  # whether the time for races is over
        self.ran_out = False
        """Whether the budget ended before a pass changed nothing."""
        self.failure: str | None = None
        """Why it found nothing."""

    @property
    def leader(self) -> Settings:
        return self._leaders[-1]

    @property
    def tried(self) -> tuple[Tried, ...]:
        return tuple(self._tried.values())

    @property
    def settings_tried(self) -> int:
        """Settings that were measured, the start among them."""
        measured = (key for key, one in self._tried.items() if one.change is not None)
        return len({one for pair in measured for one in pair})

    @property
    def pairs(self) -> int:
        return len(self._pairs)

    @property
    def found(self) -> Estimate | None:
        if not self._pairs:
            return None
        return estimate_so_far(self._pairs, effects=LARGE_TOO, orders=self._orders)

    @property
    def is_proven(self) -> bool:
        """Whether the leader is faster by more than 1 %: much of what noise can feign is less."""
        found = self.found
        return found is not None and found.low is not None and found.low > LEAST

    def verdict(self) -> str | None:
        found = self.found
        if found is None or found.low is None:
            return None
        check = same_setting_check(self._pairs, self._orders)
        return verdict(phrase(self.leader), found, check, LEAST)

    def condemn(self, changes: Settings, why: str) -> None:
        self._condemned[_key(changes)] = NoCost(reason=why, for_good=True)

    def course(self) -> Generator[Round, RoundCosts, None]:
        if self._known is None:
            yield from self._ascend()
        else:
            self._leaders.append(self._known)
        if self.failure is None and self.leader:
            yield from self._prove()

    # ── the races ───────────────────────────────────────────────────────────────────────

    def _ascend(self) -> Generator[Round, RoundCosts, None]:
        last: Tunable | None = None  # the lever taken last
        while True:
            before, raced = self.leader, self._races
            self.passes += 1
            for at, tunable in enumerate(self._tunables.values(), 1):
                led = self.leader
                yield from self._race_values(tunable, last, len(self._tunables) - at)
                if self.leader != led:
                    last = tunable
                if self.failure is not None or self._ends:
                    return
            is_optimum = self.leader == before and self._goes_on and self._races == raced
            if is_optimum and not (yield from self._leave_optimum()):
                return
            self._goes_on = self.leader == before

    def _race_values(
        self, tunable: Tunable, last: Tunable | None, waiting: int
    ) -> Generator[Round, RoundCosts, None]:
        """Race values of numbers further on in the direction that wins, too."""
        while self.failure is None:
            rivals = [*self._rivals(tunable, last)]
            if not rivals or self._has_run_out():
                return
            led = self.leader
            # in the first pass a share as if all levers were to come: a later leader is better
            races = 2 + (waiting if self.passes > 1 else len(self._tunables))
            yield from self._race(
                tunable.name, rivals, self._races_s() / races, short_runs=tunable.lever.rebuilds
            )
            won = self._tried.get(_keys((led, self.leader)))
            if won is None or tunable.lever.values or (won.change or 0.0) < FURTHER:
                return
            last = None

    def _leave_optimum(self) -> Generator[Round, RoundCosts, bool]:
        """Race combinations of levers, as no single one is faster; return whether one leads."""
        led, self._goes_on = self.leader, False
        known = islice(self._combinations(), MOST_COMBINATIONS)
        possible = [one for one in known if self._may_race(one) and not self._must_compile(one)]
        waiting = sorted(possible, key=partial(self._foreseen, self._alone()), reverse=True)
        while waiting and self.leader == led and self.failure is None and self._races_s(PROOF) > 0:
            rivals, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
            yield from self._race(
                "combinations", rivals, self._races_s(PROOF), short_runs=self._rebuilds(*rivals)
            )
        return self.leader != led

    def _combinations(self) -> Iterator[Settings]:
        """Yield settings that differ from the leader in two levers, then in three, and so on."""
        for count in range(2, len(self._tunables) + 1):
            for tunables in combinations(self._tunables.values(), count):
                for values in product(*(one.others(self._value(one.name)) for one in tunables)):
                    changed = dict(zip((one.name for one in tunables), values, strict=True))
                    yield self._changes(self.leader | changed)

    def _alone(self) -> dict[tuple[str, str, str], float]:
        """Return what each change of a single lever has brought, and its way back: logarithms."""
        alone = {}
        for one in self.tried:
            if len(one.changes) == 1 and one.change is not None:
                ((name, value),) = one.changes.items()
                alone[name, one.before[name], value] = log1p(one.change)
                alone[name, value, one.before[name]] = -log1p(one.change)
        return alone

    def _foreseen(self, alone: Mapping[tuple[str, str, str], float], rival: Settings) -> float:
        """Return the change as if levers did not interact."""
        moves = ((name, self._value(name), self._of(rival, name)) for name in self._tunables)
        return fsum(alone.get(move, 0.0) for move in moves)

    def _rivals(self, tunable: Tunable, last: Tunable | None) -> Iterator[Settings]:
        name, leader = tunable.name, self.leader
        together: list[Settings] = [{}]
        if self.passes > 1 and last is not None and last.name != name:
            cheap = not any(one.compiles or one.lever.rebuilds for one in (tunable, last))
            others = last.others(self._value(last.name)) if cheap else ()
            together += [{last.name: value} for value in others]
        for more in together:
            for value in tunable.others(self._value(name)):
                rival = self._changes(leader | more | {name: value})
                if self._may_race(rival):
                    yield rival

    def _may_race(self, rival: Settings) -> bool:
        if _key(rival) in self._lost or not self._barred.isdisjoint(rival.items()):
            return False
        if self._must_compile(rival) and self.compiled_s >= COMPILE * self._allowance.budget_s:
            return False
        is_open = any(rival in one.settings for one in self._of_leader())
        return is_open == self._goes_on

    def _of_leader(self) -> list["_OpenRace"]:
        return [one for one in self._open if one.settings[0] == self.leader]

    def _enter(self, rivals: Sequence[Settings]) -> "_OpenRace":
        for one in self._of_leader():
            if all(rival in one.settings for rival in rivals):
                self._open.remove(one)
                return one
        return _OpenRace((self.leader, *rivals), Race(1 + len(rivals)))

    def _race(
        self, what: str, rivals: Sequence[Settings], allowed_s: float, *, short_runs: bool
    ) -> Generator[Round, RoundCosts, None]:
        settings, race = self._enter(rivals)
        failures: dict[int, NoCost] = {}
        self._races += 1
        began_s, rounds, self.racing = self.spent_s, race.rounds, what
        while not race.is_over and race.rounds < rounds + MOST_ROUNDS:
            racing = tuple(race.left)
            self.left = tuple(settings[one] for one in racing)
            measured = yield Round(self.left, short_runs)
            costs = {racing[one]: cost for one, cost in self._judged(self.left, measured).items()}
            failed = {one: cost for one, cost in costs.items() if isinstance(cost, NoCost)}
            for one, failure in failed.items():
                race.drop(one)
                failures[one] = failure
                self._bar(settings[one], failure)
            if 0 in failed:
                self._leader_fails(failed[0])
                break
            timed = {one: cost for one, cost in costs.items() if not isinstance(cost, NoCost)}
            if len(timed) < len(race.left):  # one hangs, and so the others were not measured
                continue
            race.add(timed)
            race.drop_losers()
            took_s = (self.spent_s - began_s) / (race.rounds - rounds)
            self._block_s[short_runs] = took_s / len(racing)
            is_late = self.spent_s - began_s + took_s > allowed_s
            if race.rounds >= FEWEST_ROUNDS and (is_late or (race.is_close and not self._goes_on)):
                break
        self.racing, self.left = "", ()
        self._close(settings, race, failures)

    def _close(
        self, settings: tuple[Settings, ...], race: Race, failures: Mapping[int, NoCost]
    ) -> None:
        winner = race.winner if race.left and 0 not in failures else 0
        for one, rival in enumerate(settings[1:], 1):
            self._note(settings[0], rival, race.against(0, one), failures.get(one))
        left = [winner, *(one for one in race.left if one != winner)]
        self._lost |= {_key(one) for at, one in enumerate(settings) if at not in left}
        if len(left) > 1 and winner in race.left:
            self._open.append(_OpenRace(tuple(settings[one] for one in left), race.of(left)))
        if winner:
            key = _keys((settings[0], settings[winner]))
            self._tried[key] = msgspec.structs.replace(self._tried[key], taken=True)
            self._leaders.append(settings[winner])

    def _note(
        self,
        leader: Settings,
        rival: Settings,
        found: Estimate | None,
        failure: NoCost | None,
    ) -> None:
        names = [name for name in self._tunables if self._of(rival, name) != self._of(leader, name)]
        measured = found if failure is None else None
        self._tried[_keys((leader, rival))] = Tried(
            changes={name: self._of(rival, name) for name in names},
            before={name: self._of(leader, name) for name in names},
            change=measured.change if measured else None,
            low=measured.low if measured else None,
            high=measured.high if measured else None,
            rounds=measured.pairs if measured else 0,
            why_not=failure.reason if failure else None,
        )

    def _judged(self, settings: Sequence[Settings], measured: RoundCosts) -> dict[int, Cost]:
        condemned = {at: self._condemned.get(_key(one)) for at, one in enumerate(settings)}
        return {at: condemned[at] or cost for at, cost in measured.costs.items()}

    def _bar(self, rival: Settings, failure: NoCost) -> None:
        """Bar the values in which a setting differs that failed for good."""
        self._lost.add(_key(rival))
        if failure.for_good:
            others = self.leader if rival != self.leader else self._leaders[-2:][0]
            self._barred |= {
                (name, value) for name, value in rival.items() if others.get(name) != value
            }

    def _leader_fails(self, failure: NoCost) -> None:
        """Go back to the leader before; the start cannot fail without ending the tune."""
        if not self.leader:
            self.failure = failure.reason
            return
        self._leaders.pop()

    # ── the proof ───────────────────────────────────────────────────────────────────────

    def _prove(self) -> Generator[Round, RoundCosts, None]:
        self.is_proving = True
        while self.leader and not self._is_proof_over():
            settings: tuple[Settings, ...] = ({}, self.leader)
            measured = yield Round(settings, self._is_rebuilt, fresh=True)
            costs = self._judged(settings, measured)
            start, leader = costs.get(0), costs.get(1)
            if isinstance(start, NoCost):
                self.failure = start.reason
                return
            if isinstance(leader, NoCost):
                self._leader_fails(leader)
                self._pairs, self._orders = [], []
            elif start is not None and leader is not None:
                self._pairs.append((start, leader))
                self._orders.append("AB" if measured.order[0] == 0 else "BA")

    def _is_proof_over(self) -> bool:
        pairs, found = len(self._pairs), self.found
        if found is None:
            return False
        is_decided = self.is_proven or (found.high is not None and found.high <= LEAST)
        if (is_settled(found) and is_decided) or pairs >= self._allowance.pairs:
            return True
        late_s = self._allowance.budget_s * (1.0 if self.is_proven else LATE)
        return found.low is not None and self.spent_s >= late_s

    # ── time ────────────────────────────────────────────────────────────────────────────

    def _races_s(self, kept: float = 0.0) -> float:
        """Leave out the seconds that are kept for the proof; at least that part of the budget."""
        budget_s = self._allowance.budget_s
        proof_s = 2 * (FEWEST_LARGE + 1) * self._block_s.get(self._is_rebuilt, 0.0)
        part = max(kept, CLEAR_PROOF if self._is_clear else PROOF)
        return budget_s - self.spent_s - max(proof_s, part * budget_s)

    @property
    def _is_rebuilt(self) -> bool:
        return self._rebuilds(self.leader)

    def _rebuilds(self, *settings: Settings) -> bool:
        """Tell whether a change between these and the leader needs a rebuild."""
        names = {name for one in (self.leader, *settings) for name in one}
        return any(self._tunables[name].lever.rebuilds for name in names)

    @property
    def _is_clear(self) -> bool:
        taken = [one.change or 0.0 for one in self.tried if one.taken]
        return prod(1 + change for change in taken) - 1 >= CLEAR

    def _has_run_out(self) -> bool:
        if self._races_s() > 0:
            return False
        self._ends, self.ran_out = True, not self._goes_on
        return True

    def _must_compile(self, changes: Settings) -> bool:
        return any(
            self._tunables[name].compiles and value not in ("off", self._start.get(name))
            for name, value in changes.items()
        )

    # ── settings ────────────────────────────────────────────────────────────────────────

    def _value(self, name: str) -> str:
        return self._of(self.leader, name)

    def _of(self, changes: Settings, name: str) -> str:
        return changes.get(name, self._start[name])

    def _changes(self, settings: Settings) -> Settings:
        return {
            name: settings[name]
            for name in self._tunables
            if settings.get(name, self._start[name]) != self._start[name]
        }


def _key(changes: Settings) -> frozenset[tuple[str, str]]:
    return frozenset(changes.items())


def _keys(settings: Iterable[Settings]) -> tuple[frozenset[tuple[str, str]], ...]:
    return tuple(map(_key, settings))
