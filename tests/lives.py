"""What a training's states tell, each compared with the one before in the same rank."""

from collections.abc import Iterable, Iterator

from gpudash.protocol import Envelope, State


def turn(state: State, before: State | None) -> str:
    """What has happened: started, changed, paused, resumed, or how it ended."""
    if state.phase not in ("training", "paused"):
        return state.phase
    if before is None or before.process != state.process:
        return "started"
    if state.segment > before.segment:
        return "changed"
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
