"""What each key's action asks of a run; where it cannot be now, the keys that help are named."""

from collections.abc import Iterable

from gpudash import availability as rules
from gpudash.availability import WHY_NOT, Requests, Unavailable
from gpudash.protocol.training import Ability
from gpudash.snapshot import Snapshot
from gpudash.tui.keys import KEYS, TIMELINE_KEYS, key_for

_KEYS = (*TIMELINE_KEYS, *KEYS)
NEEDS: dict[str, Ability | None] = {
    **{ability: ability for ability in WHY_NOT},
    **{key.action: key.needs for key in _KEYS},
    **dict.fromkeys(("edit", "keep", "use_row"), "levers"),
    "type_line": "type",
}
"""What each action asks of a run; a request without an action has the name of the ability."""
LEVERS = {key.action: key.lever for key in _KEYS}


def availability(
    snapshot: Snapshot, requests: Requests, actions: Iterable[str]
) -> dict[str, Unavailable]:
    """Return those of the actions that are not possible now."""
    found = ((action, why_not(action, snapshot, requests)) for action in actions)
    return {action: why for action, why in found if why is not None}


def why_not(
    action: str, snapshot: Snapshot, requests: Requests, lever: str = ""
) -> Unavailable | None:
    """`lever` is the one that the action is about, if its key does not say so."""
    need, lever = NEEDS.get(action), lever or LEVERS.get(action, "")
    why = rules.why_not(action.removeprefix("screen."), snapshot, requests, need, lever)
    if why is None or not why.then:
        return why
    keys = {name: key_for(name) for name in ("restart", "pause", "compare")}
    return why._replace(reason=f"{why.reason}; {why.then.format(**keys)}")
