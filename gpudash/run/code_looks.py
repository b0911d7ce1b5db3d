"""Look where a script is, at random moments of its steps: its most frequent line costs most."""

from collections import Counter
from collections.abc import Callable
from random import Random

from gpudash.diagnosis.parts import PARTS
from gpudash.diagnosis.recent_step import LASTING
from gpudash.protocol.inspections import CodeLine, CodeLines
from gpudash.ranks.stacks import Frame, frames, own_frame, work_frame
from gpudash.run.lines import StackReply
from gpudash.snapshot import Snapshot, trains

LOOKS = 20
LEAST = 0.1
"""Of a step: with less time in the script's own code nobody asks for its line."""
WITHIN_S = (0.05, 0.4)
"""Between two looks, at random: a fixed time could always meet the same moment of a step."""


class CodeLooks:
    """The looks at a training with its present settings."""

    def __init__(
        self, ask: Callable[[], StackReply | None], say: Callable[[CodeLines], None]
    ) -> None:
        self._ask, self._say = ask, say
        self._random = Random(0)  # no secret
        self._of: tuple[object, ...] = ()
        self._reply: StackReply | None = None
        self._next_s = 0.0
        self._left = 0
        self._own: Counter[Frame | None] = Counter()
        self._work: Counter[Frame | None] = Counter()

    def look(self, now_s: float, snapshot: Snapshot) -> None:
        beside = _is_beside(snapshot)
        of = (snapshot.worker_pid, snapshot.workload, snapshot.settings, beside)
        if of != self._of:
            self._of, self._reply, self._left = of, None, LOOKS
            self._own, self._work = Counter(), Counter()
        is_there = snapshot.doing in LASTING if beside else trains(snapshot)
        if not self._left or not is_there or not is_wanted(snapshot):
            return
        if self._reply is not None:
            self._read(self._reply, now_s)
        elif now_s >= self._next_s:
            self._reply = self._ask()
            self._next_s = now_s + self._random.uniform(*WITHIN_S)
            if self._reply is None:  # it does not listen: a look that saw nothing
                self._count((), now_s)

    def _read(self, reply: StackReply, now_s: float) -> None:
        text = reply.read()
        if reply.is_whole:
            self._reply = None
            self._count(frames(text), now_s)

    def _count(self, stack: tuple[Frame, ...], now_s: float) -> None:
        self._left -= 1
        self._own[own_frame(stack)] += 1
        self._work[work_frame(stack)] += 1
        if not self._left:
            own, work = _lines(self._own), _lines(self._work)
            beside = self._of[-1] is True
            self._say(CodeLines(at_s=now_s, looks=LOOKS, lines=own, work=work, beside=beside))


def _lines(found: Counter[Frame | None]) -> tuple[CodeLine, ...]:
    return tuple(
        CodeLine(one.file, int(one.line), one.function, count)
        for one, count in found.most_common()
        if one is not None and one.line.isdecimal()
    )


def is_wanted(snapshot: Snapshot) -> bool:
    """Return whether what the script's lines make wait takes a tenth of the step, or asides do."""
    answer = snapshot.answer
    can_look = bool(snapshot.found) and "stacks" in snapshot.can
    if answer is None or not can_look or answer.step_ms is None:
        return False
    if _is_beside(snapshot):
        return True
    hosts = {one.name for one in PARTS if one.slowed != ("device",)}
    taken = (one.took_ms for one in answer.parts if one.part in hosts)
    return any((ms or 0.0) >= LEAST * answer.step_ms for ms in taken)


def _is_beside(snapshot: Snapshot) -> bool:
    """Return whether evaluation and checkpoints limit the training: their lines are looked for."""
    return snapshot.answer is not None and snapshot.answer.limit == "asides"
