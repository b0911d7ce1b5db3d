"""What cannot be asked of a training now, and why. Whoever asks, the rules are these.

They know no keys: what another action would make possible is said with a place for its key.
"""

from collections.abc import Iterator
from typing import NamedTuple

from gpudash import format as fmt
from gpudash.offers import refusal
from gpudash.protocol.training import Ability
from gpudash.snapshot import ENDED, Snapshot, compares_starts, doing_now, runs_on, trains

RECORDED = "a recording is shown"
INSTEAD = "gpudash, or gpudash run SCRIPT.py, starts a training"
COMPARED = "two trainings are compared: nothing else can be asked of them"
OF_ONE = ("code", "new_row", "new_starts", "why")
"""What asks nothing of a training, but is about one alone."""
WHY_NOT: dict[Ability, str] = {
    "levers": "the levers of this run cannot be changed",
    "pause": "this run cannot be paused",
    "restart": "this run cannot be restarted",
    "blocks": "no A/B can be run here",
    "record": "this run cannot be recorded",
    "profile": "this run cannot be profiled",
    "memory": "who owns memory is not recorded here",
    "leave": "this run ends with its dashboard",
    "type": "nothing can be typed into this run",
}
"""The reason if a run's source does not accept a request."""


class Unavailable(NamedTuple):
    """Why an action is not possible."""

    reason: str
    stays: bool = False
    """Whether its key keeps its place in a narrow footer: soon it is possible again."""
    then: str = ""
    """What to do instead or before, with the action whose key that needs, as `{restart}`."""


NOTHING_RUNS: dict[Ability | None, Unavailable] = {
    "blocks": Unavailable("nothing is running to compare", then="press {restart} first"),
    "memory": Unavailable("nothing is running"),
    "pause": Unavailable("nothing is running", then="press {restart} to restart"),
    "profile": Unavailable("nothing is running to profile", then="press {restart} first"),
    "record": Unavailable("nothing is running to record", then="press {restart} first"),
}
PROFILES: dict[Ability | None, str] = {
    "memory": "a profile is being made: ask for memory afterwards",  # it would end the profile
    "profile": "a profile is being made",
}


class Requests(NamedTuple):
    """What the user has asked for, which a snapshot may not have yet."""

    comparing: bool = False
    pausing: bool = False
    profiling: bool = False
    edits: frozenset[str] = frozenset({"undo", "redo"})
    """The ways in which there is a lever change to go."""
    proposes: bool = True
    """Whether the answer that is shown proposes a lever."""
    pipelines: bool = True
    """Whether pipelining has an effect on this device."""


def why_not(
    action: str, snapshot: Snapshot, requests: Requests, need: Ability | None, lever: str = ""
) -> Unavailable | None:
    """`need` is what the action asks of a run, `lever` the one that it is about."""
    if action == "timeline" and snapshot.profile is not None:
        return None  # an existing profile can always be shown
    never = (need and unable(need, snapshot)) or (lever and _fixed(lever, snapshot))
    if action in OF_ONE and compares_starts(snapshot):
        never = COMPARED
    if never:
        return Unavailable(never)
    is_sure = snapshot.comparison is not None and snapshot.comparison.is_sure
    if requests.comparing and (action == "compare" or (action == "keep" and is_sure)):
        return None  # it ends the A/B
    rules = (
        *_without_verdict(action, snapshot, requests),
        *_at_present(need, snapshot, requests),
        *_without_use(action, snapshot, requests),
    )
    return next(iter(rules), None)


def unable(ability: Ability, snapshot: Snapshot) -> str | None:
    """Return why a run does not accept such requests, also in its present state."""
    reason = _why_it_cannot(ability, snapshot) if runs_on(snapshot) else None
    if reason is not None or ability in snapshot.can:
        return reason
    if compares_starts(snapshot):
        return COMPARED
    return f"{RECORDED}; {INSTEAD}" if snapshot.playback else WHY_NOT[ability]


def _why_it_cannot(ability: Ability, snapshot: Snapshot) -> str | None:
    script = fmt.plain(snapshot.workload)
    if ability == "restart":
        return f"{script} is not ours to restart"
    if snapshot.state in ENDED:
        return f"{script} has ended"
    if ability in ("levers", "blocks") and not snapshot.levers:
        return "levers are known from the first training step on"
    if ability in ("pause", "profile", "memory") and snapshot.state == "starting":
        return f"{script} has trained no step so far"
    if ability == "pause" and snapshot.ranks:
        return "several ranks are not paused: in a pause their collectives would time out"
    return None


def _fixed(lever: str, snapshot: Snapshot) -> str | None:
    """Return why a lever cannot be changed in this training, after its name; None if it can."""
    reason = refusal(lever, snapshot.levers if snapshot.found else ())
    return f"{lever}: {fmt.plain(reason)}" if reason else None


def _without_verdict(action: str, snapshot: Snapshot, requests: Requests) -> Iterator[Unavailable]:
    judges = action in ("card", "go_back", "keep", "more_pairs")
    if judges and requests.comparing:
        yield Unavailable("the A/B has no verdict yet")
    if (judges or action == "new_starts") and snapshot.comparison is None:
        yield Unavailable("no A/B has been run here")


def _at_present(
    need: Ability | None, snapshot: Snapshot, requests: Requests
) -> Iterator[Unavailable]:
    if snapshot.state in ENDED and need in NOTHING_RUNS:
        yield NOTHING_RUNS[need]
    if requests.profiling and need in PROFILES:
        yield Unavailable(PROFILES[need], stays=True)
    if requests.pausing and need == "profile":
        yield Unavailable("the training is paused", stays=True, then="{pause} resumes it")
    if requests.comparing and need in ("levers", "blocks", "profile"):  # a change would end it
        slowing, shown = snapshot.slowing, snapshot.comparison
        what = "a tune" if shown is not None and shown.doing else "an A/B"
        what = "a proof by slowing" if slowing is not None and not slowing.is_over else what
        is_short = need == "profile"
        yield Unavailable(f"{what} is running", stays=is_short, then="{compare} ends it")
    if need == "blocks" and not trains(snapshot):
        needed = "an A/B needs a running training"
        yield Unavailable(f"{needed}; it is {doing_now(snapshot)}", stays=True)


def _without_use(action: str, snapshot: Snapshot, requests: Requests) -> Iterator[Unavailable]:
    match action:
        case "new_row" if snapshot.state in ENDED:
            ended = fmt.plain(snapshot.workload) if runs_on(snapshot) else "the training"
            yield Unavailable(f"{ended} has ended: a new row would stay empty")
        case "prove" if snapshot.answer is None or snapshot.answer.step_ms is None:
            yield Unavailable("there is no answer yet that could be proven")
        case "try_it" if not requests.proposes:
            compares = "press {compare} to compare the one under the cursor"
            yield Unavailable("the answer proposes no lever now", stays=True, then=compares)
        case "undo" | "redo" if action not in requests.edits:
            yield Unavailable(f"there is no lever change to {action}", stays=True)
        case "pipelining" if not requests.pipelines:
            yield Unavailable("pipelined needs a GPU: it does nothing here")
