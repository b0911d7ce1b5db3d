"""What lies between steps by the script's own doing: files that are saved, a notebook's cells."""

from .boundaries import FIRST
from .step_counts import StepCounts
from .steps import Handlers, Steps


def _save_begins(steps: Steps) -> bool:
    if not steps.meter.mode.is_on:
        return False
    steps.stop_skipping()
    held = steps.held if steps.asides.why is not None else steps.to_train_on()
    begins = steps.asides.saves()
    if begins:
        steps.turn_aside(held)
    return begins


def _save_ends(steps: Steps) -> None:
    steps.is_saved = True


def _cell_begins(steps: Steps) -> None:
    if steps.asides.why == "idle":
        steps.meter.restart()


def _flush(steps: Steps) -> None:
    steps.finish()
    steps.observer.flush()


def _cell_ends(steps: Steps) -> None:
    """Forget where the script is: an interrupt may have come anywhere."""
    meter, asides = steps.meter, steps.asides
    if asides.why == "idle":
        meter.counting.fetching = False
        return
    steps.finish()
    meter.counting.fetching = False
    steps.follower.leave()
    steps.scaled, meter.tally = None, StepCounts()
    asides.rests()
    steps.is_new_cell = True
    steps.observer.aside(asides.why)
    meter.interrupt()
    if meter.mode is not FIRST:
        meter.open(is_on=meter.mode.is_on)


HANDLERS: Handlers = {
    "torch.save: begins": _save_begins,
    "torch.save: ends": _save_ends,
    "cell: begins": _cell_begins,
    "cell: flush": _flush,
    "cell: ends": _cell_ends,
}
