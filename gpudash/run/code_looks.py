"""Look where a script is, at random moments of its steps: its most frequent line costs most."""

from collections import Counter
from collections.abc import Callable
from random import Random

from gpudash.protocol.inspections import CodeLine, CodeLines
from gpudash.ranks.stacks import Frame, frames, own_frame
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
        self._found: Counter[Frame] = Counter()

    def look(self, now_s: float, snapshot: Snapshot) -> None:
        of = (snapshot.worker_pid, snapshot.workload, snapshot.settings)
        if of != self._of:
            self._of, self._reply, self._left, self._found = of, None, LOOKS, Counter()
        if not self._left or not trains(snapshot) or not is_wanted(snapshot):
            return
        if self._reply is not None:
            self._read(self._reply, now_s)
        elif now_s >= self._next_s:
            self._reply = self._ask()
            self._next_s = now_s + self._random.uniform(*WITHIN_S)
            if self._reply is None:  # it does not listen: a look that saw nothing
                self._count(None, now_s)

    def _read(self, reply: StackReply, now_s: float) -> None:
        text = reply.read()
        if reply.is_whole:
            self._reply = None
            self._count(own_frame(frames(text)), now_s)

    def _count(self, frame: Frame | None, now_s: float) -> None:
        self._left -= 1
        if frame is not None:
            self._found[frame] += 1
        if not self._left:
            lines = tuple(
                CodeLine(one.file, int(one.line), one.function, count)
                for one, count in self._found.most_common()
                if one.line.isdecimal()
            )
            self._say(CodeLines(at_s=now_s, looks=LOOKS, lines=lines))


def is_wanted(snapshot: Snapshot) -> bool:
    """Return whether the script's own code, or what may be in it, takes a tenth of the step."""
    answer = snapshot.answer
    if answer is None or "stacks" not in snapshot.can or answer.step_ms is None:
        return False
    own = ("your code", "blocked", "allocator", "wait", "launch")
    taken = (one.took_ms for one in answer.parts if one.part in own)
    return any((ms or 0.0) >= LEAST * answer.step_ms for ms in taken)
