"""Decides which optimizer steps together make one step of a training.

An optimizer that steps a second time opens a new step. One of several that steps twice in a row on
one batch does not: some generators do. The step before ended where its last optimizer did, which is
known too late to act at that border. So the end is predicted: a step is over once every optimizer
that is due has stepped. How often an optimizer steps, such as in every fifth step, follows from its
last two steps. If a prediction was wrong, the number of steps is still right.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum

PATIENCE = 3
"""After missing so many of its turns, an optimizer is waited for no longer."""
MOST_TIMES = 16
"""An optimizer steps at most so often on a batch; after more, each of its steps is a round."""


class Begun(Enum):
    """What the begin of an optimizer's step says about the training step in progress."""

    GOES_ON = "goes on"
    JOINED = "joined"
    """It goes on, although `ends` returned MAYBE."""
    HAD_ENDED = "had ended"
    """It had ended where an optimizer last did, and the next one has begun."""
    ONE_MORE = "one more"
    """The next one has begun, and the newest optimizer step was a training step by itself."""


class Ended(Enum):
    """What the end of an optimizer's step says about the training step in progress."""

    HERE = "here"
    MAYBE = "maybe"
    BEFORE = "before"
    """It was already reported as ended, so this work belongs to the next one."""


GOES_ON, HERE = Begun.GOES_ON, Ended.HERE  # globals: an enum member costs a lookup in each step


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


class Rounds:
    """Follows the steps of the outermost optimizers, each identified by a key."""

    def __init__(self) -> None:
        self._stepped: set[Hashable] = set()  # in the round in progress
        self._is_over = True  # the end of the round was reported
        self._may_be_over = False  # an optimizer has ended in it
        self._number = 0
        self._habits: dict[Hashable, _Habit] = {}
        self._only: Hashable = None  # the only optimizer, each of whose steps is a round
        self._is_alone = False  # the only optimizer steps in this round
        self._late: Hashable = None  # stepped last, after the end of the round was reported
        self._newest: Hashable = None  # the optimizer that stepped last
        self._has_batch = False  # the round began with a batch
        self._belated: set[Hashable] = set()  # first stepped after the round was reported as over

    def expect(self, optimizer: Hashable) -> None:
        """Wait for an optimizer that has not stepped yet, in this round only."""
        if optimizer not in self._habits:
            self._leave_fast_path()
            self._habits[optimizer] = _Habit(-1, self._number, self._number)

    def forget(self, optimizer: Hashable) -> None:
        """Stop waiting for an optimizer that is gone."""
        self._leave_fast_path()
        self._habits.pop(optimizer, None)
        self._stepped.discard(optimizer)

    def begins(self, optimizer: Hashable, *, afresh: bool | None) -> Begun:
        """Note the begin of an optimizer's step; return what it says about the round.

        `afresh`: something since the last end, such as a batch, shows that a new round has begun.
        Without it, an optimizer that was not due belongs to the round that was reported as ended.
        None: nothing can show it, as without a DataLoader. There it is a round by itself if it
        never stepped before, or steps again next.
        """
        if optimizer == self._only:
            self._is_alone = True
            return GOES_ON
        self._leave_fast_path()
        said = GOES_ON
        if self._steps_again(optimizer, afresh=afresh):
            if self._may_be_over and not self._is_over:
                said, self._may_be_over = Begun.JOINED, False
            self._note(optimizer)
            return said
        repeats = optimizer in self._stepped
        is_new = afresh is None and optimizer not in self._habits
        if self._is_over and (repeats or afresh or is_new):
            said = Begun.ONE_MORE if optimizer == self._late else GOES_ON
            self._open()
        elif self._is_over:
            self._late = optimizer if afresh is None else None
            self._belated.add(optimizer)
        elif repeats and self._may_be_over:
            said = Begun.HAD_ENDED
            self._open()
        elif self._may_be_over and not self._is_over:
            said = Begun.JOINED
            self._may_be_over = False
        self._newest = optimizer
        self._has_batch |= afresh is True
        self._stepped.add(optimizer)
        self._note(optimizer)
        return said

    def _steps_again(self, optimizer: Hashable, *, afresh: bool | None) -> bool:
        """Return whether one of several optimizers steps again on the batch of its round."""
        if afresh is not False or optimizer != self._newest or not self._has_batch:
            return False
        if optimizer in self._belated:
            return False
        habit = self._habits.get(optimizer)
        is_member = habit is not None and habit.last == self._number and habit.done < MOST_TIMES
        return is_member and len(self._habits) > 1

    def ends(self) -> Ended:
        """Note the end of an optimizer's step, or of a backward pass with such steps in it."""
        if self._is_alone:
            self._is_alone = False
            return HERE
        if self._is_over:
            return Ended.BEFORE
        number = self._number
        self._may_be_over = True
        for habit in self._habits.values():
            if habit.last != number and habit.due <= number <= habit.until:
                return Ended.MAYBE
            if habit.last == number and habit.done < habit.times:
                return Ended.MAYBE
        self._is_over = True
        if len(self._habits) == 1 and habit.due == number + 1:
            (self._only,) = self._habits
        return HERE

    def end(self) -> None:
        """Note that the round is over: its last optimizer ended where `ends` returned MAYBE."""
        self._is_over = True

    def _leave_fast_path(self) -> None:
        """Leave the fast path for an only optimizer, and record the step that it left out."""
        only, self._only = self._only, None
        if self._is_alone:
            self._is_alone = False
            self._open()
            self._stepped.add(only)
            self._note(only)

    def _open(self) -> None:
        self._stepped.clear()
        self._is_over = self._may_be_over = False
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
