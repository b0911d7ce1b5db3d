"""Decides where a training's steps end: a table whose rows are the shapes of trainings.

An optimizer that steps a second time opens a new step, unless it is one of several and repeats its
step on one batch, as some generators do. The step before ended where its last optimizer did, which
is known too late to act there. So the end is predicted: a step is over once every optimizer that is
due has stepped. How often one steps follows from its last two steps. If a prediction was wrong, the
number of steps is still right.

`Mode` says how the step in progress is measured.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

State: TypeAlias = Literal["over", "alone", "open", "maybe", "passes", "declared"]
"""Nothing has updated since the newest end ("over"); the only optimizer steps ("alone"), or several
do ("open"); the step may have ended where one last stepped ("maybe"). Or no optimizer steps
("passes"), or the script declares its steps."""
Update: TypeAlias = Literal["only", "again", "repeats", "late repeats", "fresh", "other"]
"""An optimizer begins to step: the only one; one that steps again on its batch, that has stepped in
this round, or did so after the round's end; or another: something shows that a round has begun
("fresh"), or nothing does."""
Other: TypeAlias = Literal[
    "updated", "one is due", "pass", "passes alone", "no more comes", "declares"
]  # fmt: skip
"""An optimizer has stepped, and no other one is due or one is; a backward pass without optimizer
has ended, or so many that no optimizer is expected any more; nothing more of the step can come; the
script begins to declare its steps."""
Symbol: TypeAlias = Update | Other
Verdict: TypeAlias = Literal[
    "goes on", "ends", "may end", "joins", "had ended", "one more", "late"
]  # fmt: skip
"""What the symbol says about the step. "may end": a later symbol shows that it did, and that the
next one has begun ("had ended"), or that it goes on ("joins"). "one more": the newest optimizer
step was a step by itself. "late": what has ended belongs to the step whose end was said before."""


class Shape(NamedTuple):
    """What symbols say in some states, and the state that follows; None: the same."""

    name: str
    states: tuple[State, ...]
    symbols: tuple[Symbol, ...]
    says: Verdict
    then: State | None


BETWEEN: tuple[State, ...] = ("over", "passes")
WITHIN: tuple[State, ...] = ("open", "maybe")
BY_UPDATES: tuple[State, ...] = ("over", "alone", *WITHIN)
SHAPES = (
    Shape("one optimizer", (*BETWEEN, "alone"), ("only",), "goes on", "alone"),
    Shape("one optimizer", ("alone",), ("updated",), "ends", "over"),
    Shape("optimizers in turns", BETWEEN, ("repeats", "fresh"), "goes on", "open"),
    Shape("optimizers in turns", WITHIN, ("one is due",), "may end", "maybe"),
    Shape("optimizers in turns", ("maybe",), ("fresh", "other"), "joins", "open"),
    Shape("optimizers in turns", WITHIN, ("updated",), "ends", "over"),
    Shape("all in one backward pass", ("open",), ("repeats", "fresh", "other"), "goes on", "open"),
    Shape("a critic five times a generator", ("maybe",), ("repeats",), "had ended", "open"),
    Shape("a generator twice a batch", ("maybe",), ("again",), "joins", "open"),
    Shape("a generator twice a batch", BETWEEN, ("again",), "goes on", "over"),
    Shape("an optimizer now and then", BETWEEN, ("other",), "goes on", "over"),
    Shape("an optimizer now and then", BETWEEN, ("updated", "one is due"), "late", "over"),
    Shape("trainings one by one, unfed", BETWEEN, ("late repeats",), "one more", "open"),
    Shape("accumulation, or several losses", BY_UPDATES, ("pass",), "goes on", None),
    Shape("no optimizer", BY_UPDATES, ("passes alone",), "ends", "passes"),
    Shape("no optimizer", ("passes",), ("pass",), "ends", "passes"),
    Shape("an evaluation, or the end", ("maybe",), ("no more comes",), "had ended", "over"),
    Shape("gpudash.step()", (*BY_UPDATES, "passes"), ("declares",), "goes on", "declared"),
    Shape("gpudash.step()", ("declared",), ("updated", "one is due"), "late", None),
)
"""What is in no row says nothing."""
SAYS = {
    (state, symbol): (row.says, row.then or state)
    for row in SHAPES
    for state in row.states
    for symbol in row.symbols
}
PATIENCE = 3
"""After missing so many of its turns, an optimizer is waited for no longer."""
MOST_TIMES = 16
"""An optimizer steps at most so often on a batch; after more, each of its steps is a round."""


@dataclass(slots=True)
class _Habit:
    """The round in which an optimizer last stepped, and the rounds in which it is due."""

    last: int
    due: int
    until: int
    times: int = 1
    """How often it stepped in the round before that one."""
    done: int = 0
    """How often it stepped in that round so far."""


class Boundaries:
    """Follows the steps of the outermost optimizers, each identified by a key, in rounds."""

    def __init__(self) -> None:
        self.state: State = "over"
        self._stepped: set[Hashable] = set()  # in the round in progress
        self._number = 0
        self._habits: dict[Hashable, _Habit] = {}
        self._only: Hashable = None  # the only optimizer, each of whose steps is a round
        self._late: Hashable = None  # stepped last, after the end of the round was reported
        self._newest: Hashable = None  # the optimizer that stepped last
        self._has_batch = False  # the round began with a batch
        self._belated: set[Hashable] = set()  # first stepped after the round was reported as over

    def feed(self, symbol: Symbol) -> Verdict:
        says, self.state = SAYS.get((self.state, symbol)) or ("goes on", self.state)
        if says == "ends" and self.state == "passes":  # a round without an optimizer
            self._only = None
            self._open()
        return says

    def expect(self, optimizer: Hashable) -> None:
        """Wait for an optimizer that has not stepped yet, in this round only."""
        if optimizer not in self._habits:
            self._leave_fast_path()
            self._habits[optimizer] = _Habit(-1, self._number, self._number)

    def forget(self, optimizer: Hashable) -> None:
        self._leave_fast_path()
        self._habits.pop(optimizer, None)
        self._stepped.discard(optimizer)

    def update_begins(self, optimizer: Hashable, *, afresh: bool | None) -> Verdict:
        """Begin a new round if something since the last end, such as a batch, shows one: `afresh`.

        Without it, an optimizer that was not due belongs to the round that was reported as ended.
        None: nothing can show it, as without a DataLoader. There it is a round by itself if it
        never stepped before, or steps again next.
        """
        if optimizer == self._only:
            says, self.state = SAYS[self.state, "only"]  # not `feed`: a call costs in each step
            return says
        self._leave_fast_path()
        update, was_between = self._kind(optimizer, afresh=afresh), self.state in BETWEEN
        says = self.feed(update)
        if update != "again":
            if says == "had ended" or (was_between and self.state == "open"):
                self._open()
            elif was_between:
                self._late = optimizer if afresh is None else None
                self._belated.add(optimizer)
            self._newest = optimizer
            self._has_batch |= afresh is True
            self._stepped.add(optimizer)
        self._note(optimizer)
        return says

    def update_ends(self) -> Verdict:
        """Note also the end of a backward pass with optimizer steps in it."""
        if self.state == "alone":
            says, self.state = SAYS["alone", "updated"]
            return says
        says = self.feed("one is due" if self._is_one_due() else "updated")
        if says == "ends" and len(self._habits) == 1:
            ((only, habit),) = self._habits.items()
            if habit.due == self._number + 1:
                self._only = only
        return says

    def _kind(self, optimizer: Hashable, *, afresh: bool | None) -> Update:
        if afresh is False and optimizer == self._newest and self._is_member(optimizer):
            return "again"
        is_new = afresh is None and optimizer not in self._habits
        if optimizer in self._stepped or afresh or is_new:
            if optimizer == self._late:
                return "late repeats"
            return "repeats" if optimizer in self._stepped else "fresh"
        return "other"

    def _is_member(self, optimizer: Hashable) -> bool:
        if not self._has_batch or optimizer in self._belated:
            return False
        habit = self._habits.get(optimizer)
        is_member = habit is not None and habit.last == self._number and habit.done < MOST_TIMES
        return is_member and len(self._habits) > 1

    def _is_one_due(self) -> bool:
        number = self._number
        for habit in self._habits.values():
            if habit.last == number:
                if habit.done < habit.times:
                    return True
            elif habit.due <= number <= habit.until:
                return True
        return False

    def _leave_fast_path(self) -> None:
        only, self._only = self._only, None
        if self.state == "alone":
            self.state = "open"
            self._open()
            self._stepped.add(only)
            self._note(only)

    def _open(self) -> None:
        self._stepped.clear()
        self._late = self._newest = None
        self._has_batch = False
        self._belated.clear()
        self._number += 1

    def _note(self, optimizer: Hashable) -> None:
        number, habit = self._number, self._habits.get(optimizer)
        if habit is None or habit.last < 0:
            self._habits[optimizer] = _Habit(number, number + 1, number + PATIENCE, done=1)
        elif habit.last != number:
            every = number - habit.last
            habit.last, habit.due, habit.until = number, number + every, number + PATIENCE * every
            habit.times, habit.done = habit.done, 1
        else:
            habit.done += 1


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
