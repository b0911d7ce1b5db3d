"""What happens in the life of a training, as states; and what states tell of it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from gpudash.protocol.commands import Plan
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.training import Aside, Failed, State
from gpudash.ranks.normalise import Normaliser


def turn(state: State, before: State | None) -> str:
    """What has happened: started, changed, loads, paused, resumed, or how it ended."""
    if state.phase not in ("training", "paused"):
        return state.phase
    if before is None or before.process != state.process:
        return "started"
    if state.segment > before.segment:
        return "changed"
    if state.loader_pids != before.loader_pids:
        return "loads"
    return "paused" if state.phase == "paused" else "resumed"


def name_of(kind: type | str) -> str:
    """The name of a turn or of a class."""
    return kind if isinstance(kind, str) else kind.__name__


def turns(events: Iterable[object]) -> Iterator[tuple[str, object]]:
    """Each event of one rank with what it is: a state by its turn, others by their class."""
    before = None
    for event in events:
        if isinstance(event, State):
            yield turn(event, before), event
            before = event
        else:
            yield type(event).__name__, event


def is_turn(event: object, events: Iterable[object], kind: str) -> bool:
    """Whether the event, one of these, is a state of this turn."""
    return any(one is event and name == kind for name, one in turns(events))


def told(events: Iterable[object], kind: type | str) -> list:
    """The events of one rank of this class, or the states of this turn."""
    return [event for one, event in turns(events) if one == name_of(kind)]


def told_by(envelopes: Iterable[Envelope], kind: type | str, rank: int | None = None) -> list:
    """The same of the messages of several ranks, or of one of them."""
    ranks: dict[int, State] = {}
    found = []
    for one in envelopes:
        body, before = one.body, ranks.get(one.rank)
        name = type(body).__name__
        if isinstance(body, State):
            ranks[one.rank] = body
            name = turn(body, before)
        if name == name_of(kind) and rank in (None, one.rank):
            found.append(body)
    return found


# ── what happens ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Next:
    """A state that differs from the one before in this."""

    changes: dict[str, object]

    def after(self, before: State | None) -> State:
        before = before or State(at_s=0.0, phase="training")
        changes = dict(self.changes)
        if changes.pop("another_segment", False):
            changes.setdefault("segment", before.segment + 1)
        return replace(before, **({"answers": ()} | changes))


def paused(at_s: float, why: Aside = "asked", **more: object) -> Next:
    return Next({"at_s": at_s, "phase": "paused", "why": why} | more)


def resumed(at_s: float, **more: object) -> Next:
    return Next({"at_s": at_s, "phase": "training", "why": None} | more)


def changed(at_s: float, **more: object) -> Next:
    return Next({"at_s": at_s, "another_segment": True} | more)


def finished(at_s: float, after_step: int = 1, **more: object) -> Next:
    end = {"phase": "finished", "why": None, "after_step": after_step}
    return Next({"at_s": at_s} | end | more)


# a process may not have told these by itself


def failed(at_s: float, sentence: str = "it died", kind: str = "error", **more: object) -> State:
    failure = Failed(kind=kind, sentence=sentence)
    return State(at_s=at_s, phase="failed", failure=failure, **more)


def stopped(at_s: float) -> State:
    return State(at_s=at_s, phase="stopped")


def parted(at_s: float) -> State:
    return State(at_s=at_s, phase="parted")


def starting(at_s: float, plan: Plan) -> State:
    """Another worker is being started."""
    settings = plan.settings
    return State(
        at_s=at_s,
        phase="starting",
        workload=plan.workload,
        settings=settings,
        requested=settings,
    )


def in_process(state: State, **changes: object) -> State:
    """The state in a process that differs in this."""
    return replace(state, process=replace(state.process, **changes))


class Narrator:
    """Tells what happens to several ranks in terms of the run, as the session passes it on."""

    def __init__(self) -> None:
        self.normaliser = Normaliser()
        self._states: dict[int, State] = {}

    @property
    def segment(self) -> int:
        """Rank 0's."""
        return self._states[0].segment

    def tell(self, item: object, rank: int = 0) -> object:
        if isinstance(item, Next):
            item = item.after(self._states.get(rank))
        if isinstance(item, State):
            self._states[rank] = item
        return self.normaliser.stamp(item, rank)


def said(
    body: object, rank: int = 0, seq: int = 0, *, source: str = "training", at_s: float = 0.0
) -> Envelope:
    """A message in its envelope; its number matters only where somebody counts messages."""
    return Envelope(source=source, rank=rank, seq=seq, sent_s=at_s, body=body)


def stamped(envelopes: Iterable[Envelope]) -> Iterator[Envelope]:
    """The messages in terms of the run."""
    narrator = Narrator()
    for one in envelopes:
        yield replace(one, body=narrator.tell(one.body, 0 if one.source == "session" else one.rank))
