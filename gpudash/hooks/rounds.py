"""Which optimizer steps make one step of a training that nobody wrote for us.

An optimizer that steps again opens a new step, and the step before ended where its last optimizer
did. That is known too late to act on, so the end is foretold: a step is over once every optimizer
that is due has stepped. How often one comes, every step or every fifth, is taken from its last two
times. Where an optimizer came that was not due, the count of steps is right all the same.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum

PATIENCE = 3
"""An optimizer that stays away for so many of its turns is waited for no longer."""


class Begun(Enum):
    """What the begin of an optimizer's step says of the step in progress."""

    GOES_ON = "goes on"
    JOINED = "joined"
    """It goes on, though it might have ended."""
    HAD_ENDED = "had ended"
    """Another has begun; it ended where an optimizer last did."""


class Ended(Enum):
    """What the end of an optimizer's step says of the step in progress."""

    HERE = "here"
    MAYBE = "maybe"
    BEFORE = "before"
    """It had been told to be over already: this work is of the next one."""


GOES_ON, HERE = Begun.GOES_ON, Ended.HERE  # looked up for each step


@dataclass(slots=True)
class _Habit:
    """When an optimizer stepped last and is due again, in rounds."""

    last: int
    due: int
    until: int


class Rounds:
    """Told of the outermost optimizers' steps, each by a key of its own."""

    def __init__(self) -> None:
        self._stepped: set[Hashable] = set()  # in the round in progress
        self._is_over = True  # as was told
        self._may_be_over = False  # an optimizer has ended in it
        self._number = 0
        self._habits: dict[Hashable, _Habit] = {}
        self._only: Hashable = None  # there is no other, and each of its steps is a round
        self._is_alone = False  # in the round in progress

    def expect(self, optimizer: Hashable) -> None:
        """Wait for an optimizer that has not stepped, in this round alone."""
        if optimizer not in self._habits:
            self._note_company()
            self._habits[optimizer] = _Habit(-1, self._number, self._number)

    def forget(self, optimizer: Hashable) -> None:
        """Wait no longer for an optimizer: it is gone."""
        self._note_company()
        self._habits.pop(optimizer, None)
        self._stepped.discard(optimizer)

    def begins(self, optimizer: Hashable, *, afresh: bool) -> Begun:
        """Take the begin of a step of an optimizer.

        `afresh`: something since the end that was told says that another round began, as a batch
        does; else an optimizer that was not due belongs to the round that is over.
        """
        if optimizer == self._only:
            self._is_alone = True
            return GOES_ON
        self._note_company()
        said = GOES_ON
        repeats = optimizer in self._stepped
        if self._is_over and (repeats or afresh):
            self._open()
        elif repeats and self._may_be_over:
            said = Begun.HAD_ENDED
            self._open()
        elif self._may_be_over and not self._is_over:
            said = Begun.JOINED
            self._may_be_over = False
        self._stepped.add(optimizer)
        self._note(optimizer)
        return said

    def ends(self) -> Ended:
        """Take the end of an optimizer's step, or of the backward pass in which some stepped."""
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
        self._is_over = True
        if len(self._habits) == 1 and habit.due == number + 1:
            (self._only,) = self._habits
        return HERE

    def _note_company(self) -> None:
        """Count no longer on an only optimizer; write down what was left out for it."""
        only, self._only = self._only, None
        if self._is_alone:
            self._is_alone = False
            self._open()
            self._stepped.add(only)
            self._note(only)

    def _open(self) -> None:
        self._stepped.clear()
        self._is_over = self._may_be_over = False
        self._number += 1

    def _note(self, optimizer: Hashable) -> None:
        number, habit = self._number, self._habits.get(optimizer)
        if habit is None or habit.last < 0:
            self._habits[optimizer] = _Habit(number, number + 1, number + PATIENCE)
        elif habit.last != number:
            every = number - habit.last
            habit.last, habit.due, habit.until = number, number + every, number + PATIENCE * every
