"""Account for a run's training time by what limited it."""

from typing import NamedTuple

from gpudash.format import percent
from gpudash.protocol.answer import Answer, AnswerShown
from gpudash.protocol.envelope import Event
from gpudash.protocol.readings import Reading
from gpudash.protocol.training import Progress, State
from gpudash.window import Pace

MOST_MOMENTS = 50
"""Most moments kept at which a limit began: the newest."""


class Limited(NamedTuple):
    """The training time for which an answer held."""

    answer: Answer
    """The newest one of this title."""
    seconds: float = 0.0
    share: float = 0.0
    """Of the training time that was not part of an A/B."""
    began_s: tuple[float, ...] = ()
    """When it became the answer, oldest first: the newest moments."""


class Limits:
    """Counts steps before an answer as part of its time, and those of an A/B as nobody's."""

    def __init__(self) -> None:
        self._limited: dict[str, Limited] = {}  # by the answer's title
        self._trained_s = 0.0
        self._open_s = 0.0  # since the last break, before its answer
        self._since_break = 0
        self._in_block = False
        self._title = ""

    def fold(self, item: Event | Reading, answer: Answer | None) -> None:
        match item:
            case State():
                self._in_block = item.block is not None
            case Progress() if item.steps and not self._in_block:
                self._train(item)
                self._give(answer, item.until_s)
            case AnswerShown():  # perhaps after the last step
                self._give(answer, item.at_s)

    def shares(self) -> list[Limited]:
        whole_s = self._trained_s or 1.0
        found = (one._replace(share=one.seconds / whole_s) for one in self._limited.values())
        return sorted(found, key=lambda one: -one.seconds)

    def main(self) -> str:
        return next(map(said, self.shares()), "")

    def _train(self, item: Progress) -> None:
        newest = item.steps[-1].since_break
        if newest < self._since_break:  # its steps were too few for an answer
            self._open_s = 0.0
        self._since_break = newest
        spent_s = Pace(item.steps).busy_s
        self._trained_s += spent_s
        self._open_s += spent_s

    def _give(self, answer: Answer | None, at_s: float) -> None:
        """Give the time since the last answer to this one."""
        if answer is None:
            return
        before = self._limited.get(answer.title, Limited(answer))
        began_s = (*before.began_s, *((at_s,) if answer.title != self._title else ()))
        self._limited[answer.title] = before._replace(
            answer=answer,
            seconds=before.seconds + self._open_s,
            began_s=began_s[-MOST_MOMENTS:],
        )
        self._title, self._open_s = answer.title, 0.0


def said(one: Limited) -> str:
    # without why it is unclear
    return (
        f"{one.answer.title.partition(',')[0]} for {percent(100 * one.share)} of the training time"
    )
