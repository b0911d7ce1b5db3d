"""Updates of the weights: by optimizers, under a GradScaler, and in CUDA graphs."""

from typing import Any

from .follower import NOBODY
from .steps import Handlers, Steps

OTHERS_STEPS = 8
"""After so many steps of another thread's optimizers, and none of ours, follow that thread."""


def _begins(steps: Steps, optimizer: Any, has_closure: bool) -> bool:  # noqa: FBT001
    meter, key = steps.meter, id(optimizer)
    if not steps.follower.is_here and not _accepts(steps):
        return False
    if meter.mode.is_skipping:
        if key == meter.counting.optimizer and not has_closure:
            return True
        steps.stop_skipping()
    if _is_nested(steps, key, has_closure=has_closure):
        meter.is_plain = False
        return True
    _forget_others(steps, key)
    follower, findings = steps.follower, steps.findings
    follower.has_closure, follower.newest_optimizer = has_closure, key
    _begin(steps, key)
    if key not in findings.optimizers:
        for other in findings.meet(key, optimizer):
            steps.boundaries.expect(other)
    if not has_closure:
        meter.enter("updates")
    return True


def _own_begins(steps: Steps, optimizer: Any) -> bool:
    return _begins(steps, optimizer, False) or steps.follower.failed_thread is not None


def _ends(steps: Steps, optimizer: Any) -> None:
    """Note that an optimizer has stepped, or that its GradScaler skipped the step."""
    follower = steps.follower
    if follower.failed_thread is not None:
        steps.restore_at_border(id(optimizer))
    elif steps.meter.mode.is_skipping and follower.is_here:
        steps.skip()
    elif follower.optimizers and (follower.is_here or follower.runs_backward_here):
        follower.optimizers -= 1
        if follower.optimizers:
            return
        if follower.backwards:
            follower.has_updated = True
            steps.meter.enter("learns")
        else:
            update_ends(steps)


def update_ends(steps: Steps) -> None:
    steps.bare_backwards = 0
    if steps.follower.has_learned:
        steps.follower.has_learned = False
    steps.obey(steps.boundaries.update_ends())


def _scaler_begins(steps: Steps, optimizer: Any) -> bool:
    steps.stop_skipping()
    if steps.follower.may_be_here:
        steps.findings.note("scaler")
    return _begins(steps, optimizer, has_closure=False)


def _accepts(steps: Steps) -> bool:
    follower = steps.follower
    if follower.captured is not None:
        follower.captured = True
    if follower.thread == NOBODY:
        return False
    return follower.runs_backward_here or takes_over(steps, trains=True)


def takes_over(steps: Steps, *, trains: bool = False) -> bool:
    """Let this thread replace one that no longer trains, if an optimizer steps next."""
    follower = steps.follower
    if follower.thread == NOBODY or (
        follower.lives and not (trains and _followed_has_stopped(steps))
    ):
        return False
    follower.move_here()
    steps.meter.counting.thread = None
    return True


def _followed_has_stopped(steps: Steps) -> bool:
    steps.findings.note("other thread")
    follower, counting = steps.follower, steps.meter.counting
    is_busy = follower.optimizers or follower.backwards or counting.fetching
    return follower.others_have_stepped(counting.steps) > OTHERS_STEPS and not is_busy


def _is_nested(steps: Steps, key: int, *, has_closure: bool) -> bool:
    """Note how deep in optimizers this one steps; return whether in another."""
    follower = steps.follower
    steps_again = follower.optimizers > 0 and key == follower.newest_optimizer
    if steps_again and (has_closure or "scaler" not in steps.findings.facts):
        follower.optimizers, steps.meter.is_plain = 0, False  # left above 0 by an exception
    follower.optimizers += 1
    return follower.optimizers > 1


def _forget_others(steps: Steps, key: int) -> None:
    """Forget the optimizers that are gone, and another cell's training if this one is new."""
    for gone in steps.findings.lost():
        steps.boundaries.forget(gone)
    if steps.is_new_cell:
        steps.is_new_cell = False
        if key not in steps.findings.optimizers:
            steps.begin_anew()


def _begin(steps: Steps, key: int) -> None:
    state, asides = steps.boundaries.state, steps.asides
    if state != "declared":
        says = steps.boundaries.update_begins(key, afresh=_is_afresh(steps))
        if says != "goes on":
            steps.obey(says)
        if state == "passes":
            steps.findings.is_news = True
        if asides.why is not None:
            steps.observer.aside(None)
        if asides.is_between:
            asides.trains()
    steps.learned.updates(steps.meter.tally)


def _is_afresh(steps: Steps) -> bool | None:
    """Return whether something of another step has come since the newest end; None: unknown."""
    if steps.meter.tally.batches:
        return True
    learns = steps.follower.has_closure or steps.follower.backwards > 0
    if steps.boundaries.state == "passes":  # else the pass has ended the step of this update
        return learns
    if steps.feeds.is_fed():
        return False
    return False if steps.follower.has_learned is False and not learns else None


# ── CUDA graphs ─────────────────────────────────────────────────────────────────────────


def _capture_begins(steps: Steps) -> None:
    if steps.follower.may_be_here:
        steps.stop_skipping()
        steps.follower.captured, steps.follower.thread = False, NOBODY


def _capture_ends(steps: Steps, graph: Any) -> None:
    follower, findings = steps.follower, steps.findings
    if follower.captured is not None:
        findings.graphs[graph] = follower.captured
        follower.captured, findings.is_news = None, True
        follower.move_here()


def _replay_begins(steps: Steps, graph: Any) -> bool:
    """Take a replay for a step if an optimizer steps in it."""
    if not steps.findings.graphs.get(graph):
        return False
    steps.follower.has_learned = True  # in the graph
    _begin(steps, id(graph))
    steps.meter.enter("replays")
    return True


def _replay_ends(steps: Steps, _graph: Any) -> None:
    update_ends(steps)


HANDLERS: Handlers = {
    "optimizer: begins": _begins,
    "optimizer: own begins": _own_begins,
    "optimizer: ends": _ends,
    "GradScaler: begins": _scaler_begins,
    "CUDA graph: capture begins": _capture_begins,
    "CUDA graph: capture ends": _capture_ends,
    "CUDA graph: replay begins": _replay_begins,
    "CUDA graph: replay ends": _replay_ends,
}
