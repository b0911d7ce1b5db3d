"""DataLoaders: the waits for batches, and the batches' sizes."""

import time
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader

from .boundaries import FIRST
from .meter import Asked
from .samples import Tokens, first_dimension, first_tensor, tokens_in
from .step_counts import StepCounts, total
from .steps import Handlers, Steps


def _opened(steps: Steps, iterator: Any, loader: Any) -> bool:
    """Return whether the training waits for it."""
    meter, feeds = steps.meter, steps.feeds
    if not isinstance(loader, DataLoader):
        library = type(loader).__module__.partition(".")[0]
        steps.findings.is_news |= library != feeds.foreign
        feeds.foreign = library
        return False
    if steps.stop_skipping():
        meter.samples = None  # the script may have left the newest batch
    if meter.mode is FIRST and not steps.follower.declared:
        meter.tally = StepCounts()  # batches before these were looked at, or evaluated
    feeds.opened(iterator, loader, keeps=meter.mode.is_on)
    is_fed = feeds.feed is not None and feeds.feed.loader() is loader
    if not (is_fed and meter.mode.is_timed and steps.asides.why is None):
        return False
    meter.enter("waits")
    meter.ask()
    return True


def _started(steps: Steps, waits: bool | None) -> None:  # noqa: FBT001  # as it is told
    """Note that an epoch has begun: its workers run, and its sampler has drawn."""
    meter = steps.meter
    if waits:
        meter.started()
        meter.enter("has a batch")
    if steps.follower.may_be_here:
        steps.observer.loads()


def _asked(steps: Steps, iterator: Any) -> bool:
    meter, asides = steps.meter, steps.asides
    if not meter.mode.is_on or meter.counting.fetching or not steps.follower.may_be_here:
        return False
    if meter.mode.is_skipping:
        if steps.feeds.is_of(iterator):
            meter.counting.fetching = True
            meter.ask()
            return True
        steps.stop_skipping()
    meter.counting.fetching = True
    steps.follower.optimizers = steps.follower.backwards = 0  # an exception may have left these
    if asides.fetches(steps.feeds.loader_id(iterator)):
        steps.turn_aside()
    elif asides.why is not None:
        steps.restart()
    meter.enter("waits")
    meter.ask()
    return True


def _arrived(steps: Steps, iterator: Any, batch: Any, asked: Asked | None) -> None:
    """Note that the batch has come. `asked` is as for `waited`."""
    now, meter, feeds = time.monotonic(), steps.meter, steps.feeds
    meter.counting.fetching = False
    tally, is_skipping = meter.tally, meter.mode.is_skipping
    if feeds.is_of(iterator):
        meter.waited(asked)
    else:
        meter.started(meter.clock.host.usual_wait_s if meter.clock is not None else 0.0)
    tally.batches += 1
    size = first_dimension(batch)
    tally.newest, tally.fetched = size or 0, total(tally.fetched, size)
    if meter.has_tokens or not is_skipping:
        _count_tokens(steps, tally, tokens_in(batch))
    if is_skipping:
        meter.counting.next_begun = True
        return
    is_elsewhere = _is_elsewhere(steps, first_tensor(batch))
    meter.enter("has to copy" if is_elsewhere else "has a batch")
    if not feeds.is_of(iterator) and feeds.note(iterator, steps.asides, batch):
        steps.findings.is_news = True
    steps.idle(now)


def _failed(steps: Steps, iterator: Any, asked: Asked | None) -> None:
    """Note that the loader is exhausted, or raised; `asked` is as for `waited`."""
    meter = steps.meter
    meter.counting.fetching = False
    # the steps that were only counted end here, after this wait
    meter.waited(asked)
    steps.stop_skipping()
    steps.asides.exhausts(steps.feeds.loader_id(iterator))
    meter.enter("has a batch")


def _count_tokens(steps: Steps, tally: StepCounts, tokens: Tokens | None) -> None:
    if tokens is None:
        tally.newest_tokens, tally.tokens = 0, None
        return
    tally.newest_tokens, tally.tokens = tokens.number, total(tally.tokens, tokens.number)
    tally.padding = total(tally.padding, tokens.padding)
    steps.meter.has_tokens = True
    if tokens.padding is None:
        steps.findings.note("padding")


def _is_elsewhere(steps: Steps, tensor: Tensor | None) -> bool:
    known = steps.findings.device_type if steps.findings.calls_seen else ""
    return tensor is not None and known not in ("", tensor.device.type)


def _copy_begins(steps: Steps, tensor: Tensor) -> bool:
    copies = _is_elsewhere(steps, tensor)
    if copies:
        steps.meter.enter("copies")
    return copies


def _copy_ends(steps: Steps, _tensor: Tensor) -> None:
    steps.meter.enter("has copied")


HANDLERS: Handlers = {
    "DataLoader: opened": _opened,
    "DataLoader: started": _started,
    "DataLoader: asked": _asked,
    "DataLoader: arrived": _arrived,
    "DataLoader: failed": _failed,
    "copy: begins": _copy_begins,
    "copy: ends": _copy_ends,
}
