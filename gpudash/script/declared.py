"""Steps that the script declares by `gpudash.step`: after the first one, no others are looked for.

They count whatever its optimizers do.
"""

import time
from operator import index
from threading import get_ident

from .explicit import Count
from .follower import NOBODY
from .step_counts import StepCounts
from .steps import Handlers, Steps


def _begins(steps: Steps) -> None:
    follower, meter, asides = steps.follower, steps.meter, steps.asides
    declares = steps.boundaries.state == "declared"
    if not follower.is_here and (declares or follower.thread == NOBODY):
        return
    follower.declared += 1
    if follower.declared > 1:
        return
    if not declares:
        _declare(steps)
    follower.optimizers = follower.backwards = 0  # an exception may have left these above 0
    if asides.why is not None:
        if not _has_waited(meter.tally):
            steps.restart(steps.held)
        steps.observer.aside(None)
    asides.trains()
    meter.enter("begins")
    if meter.clock is None:
        now_s, waited_s = time.monotonic(), meter.tally.data_s
        meter.first_began_s = min(now_s - waited_s, meter.asked[0]) if waited_s else now_s


def _ends(steps: Steps, samples: Count, tokens: Count, counts: bool) -> None:  # noqa: FBT001
    """Close the step, unless it failed: then `counts` is False."""
    if not steps.follower.declared:
        return
    steps.follower.declared -= 1
    if steps.follower.declared:
        return
    if counts:
        steps.close((_whole(samples), _whole(tokens)))
    else:
        steps.asides.border()
        steps.meter.tally = StepCounts()


def _declare(steps: Steps) -> None:
    steps.no_more_comes()
    steps.boundaries.feed("declares")
    steps.follower.thread = get_ident()
    steps.stop_skipping()
    tally = steps.meter.tally
    steps.meter.tally = tally.of_batches() if _has_waited(tally) else StepCounts()
    steps.findings.is_news = True


def _has_waited(tally: StepCounts) -> bool:
    """Most loops wait for a batch before they declare its step, so the wait is part of it."""
    return tally.batches > 0 and not (tally.calls or tally.backwards)


def _whole(count: Count) -> int | None:
    return None if count is None else index(count)


HANDLERS: Handlers = {
    "gpudash.step: begins": _begins,
    "gpudash.step: ends": _ends,
}
