"""Put messages in terms of the run: each worker counts its segments and steps from 0."""

from collections import defaultdict, deque
from typing import NamedTuple

from msgspec.structs import replace

from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.readings import Reading
from gpudash.protocol.training import Progress, State, Step, Turn, Untimed
from gpudash.snapshot import ENDED
from gpudash.statistics import WARMUP_STEPS

NO_STATE = State(at_s=0.0, phase="starting")
WORKER = ("training", "output")
"""Source names of a worker's process."""


class Normaliser:
    """Completes states, stamps steps, drops repeats. A message stamped before stays the same."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, int], int] = {}  # newest `seq` of each source and rank
        self._ranks = defaultdict[int, _Numbering](_Numbering)

    def take(self, envelope: Envelope) -> Envelope | None:
        """Return None for a repeat."""
        key = (envelope.source, envelope.rank)
        if envelope.seq <= self._newest.get(key, -1):
            return None
        self._newest[key] = envelope.seq
        return self.take_own(envelope)

    def take_own(self, envelope: Envelope) -> Envelope:
        body = self.stamp(envelope.body, envelope.rank)
        return envelope if body is envelope.body else replace(envelope, body=body)

    def stamp(self, body: Event | Reading, rank: int = 0) -> Event | Reading:
        if not isinstance(body, State | Progress):
            return body
        own = self._ranks[rank]
        if isinstance(body, Progress):
            untimed = tuple(map(own.untimed, body.untimed))
            return replace(body, steps=tuple(map(own.step, body.steps)), untimed=untimed)
        if body.phase == "starting":  # another process, which counts from 0
            newest = self._newest.items()
            self._newest = {key: seq for key, seq in newest if key[0] not in WORKER}
        return own.state(body)


class _Stretch(NamedTuple):
    """Steps after a break, or after a shorter standstill: loaders went on in it."""

    after_step: int
    break_step: int
    """The last step before the newest break."""
    cold_until_step: int
    """The last one that is not warm."""


class _Numbering:
    """The newest state of a rank, and how its process counts."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._workers = 0
        self._segment = 0  # the newest one of the run
        self._base = 0  # added to the process's segments
        self._stretches = deque([_Stretch(0, 0, WARMUP_STEPS)])

    def state(self, state: State) -> State:
        before, is_stamped = self._state, state.worker > 0
        if state.process is None and state.phase != "starting" and before is not None:
            state = _completed(state, before)
        is_new = state.process is not None and (
            state.worker != self._workers
            if is_stamped
            else before is None or state.process != before.process
        )
        if is_new:
            begins = state.segment if is_stamped else self._segment + (self._workers > 0)
            self._base = begins - state.segment
            self._workers = state.worker or self._workers + 1
        segment = state.segment if state.worker else self._base + state.segment
        state = replace(
            state,
            worker=self._workers,
            segment=segment,
            since_s=state.since_s if is_stamped else _since_s(state, None if is_new else before),
        )
        state = _turned(state, before or NO_STATE)
        self._note_stretch(state, before or NO_STATE)
        self._segment = max(self._segment, segment)
        self._state = state
        return state

    def step(self, step: Step) -> Step:
        while len(self._stretches) > 1 and self._stretches[1].after_step < step.step:
            self._stretches.popleft()
        stretch = self._stretches[0]
        since_break = step.step - stretch.break_step
        segment = self._base + step.segment
        self._segment = max(self._segment, segment)
        warm = min(max(step.step - stretch.cold_until_step, 0), step.count)
        return replace(step, segment=segment, since_break=since_break, warm=warm)

    def untimed(self, steps: Untimed) -> Untimed:
        segment = self._base + steps.segment
        self._segment = max(self._segment, segment)
        return replace(steps, segment=segment)

    def _note_stretch(self, state: State, before: State) -> None:
        # a block is as long as its own warm-up needs
        least = WARMUP_STEPS if state.block is None else 0
        warmup_steps, after_step = max(state.warmup_steps, least), state.after_step
        anew = _Stretch(after_step, after_step, after_step + warmup_steps)
        if "starts" in state.turns:
            self._stretches = deque([_Stretch(0, 0, warmup_steps), anew])
        elif "changes" in state.turns or state.why == "asked":
            self._stretches.append(anew)
        elif state.phase == "training" and after_step > before.after_step:
            self._stretches.append(anew._replace(break_step=self._stretches[-1].break_step))


def _completed(end: State, before: State) -> State:
    return replace(
        before,
        at_s=end.at_s,
        phase=end.phase,
        why=None,
        answers=end.answers,
        after_step=end.after_step or before.after_step,
        failure=end.failure or before.failure,
        trained_until_s=end.trained_until_s,
    )


def _turned(state: State, before: State) -> State:
    process, former = state.process, before.process
    starts = process is not None and state.worker != before.worker
    stands_anew = (state.phase, state.why) != (before.phase, before.why)
    turns: dict[Turn, bool] = {
        "starts": starts,
        "replaces": process is not None and former is not None and process.pid != former.pid,
        "changes": not starts and state.segment > before.segment,
        "pauses": state.phase == "paused" and stands_anew,
        "blocks": (state.run is None) != (before.run is None),
        "fails": state.failure is not None and state.failure != before.failure,
    }
    stood = None
    if before.why is not None and stands_anew and not starts:
        stood = before.why, before.since_s
    return replace(state, turns=tuple(turn for turn, is_so in turns.items() if is_so), stood=stood)


def _since_s(state: State, before: State | None) -> float:
    if before is not None and (
        (state.phase, state.why) == (before.phase, before.why)
        or (state.phase in ENDED and before.phase in ENDED)
    ):
        return before.since_s
    return state.at_s
