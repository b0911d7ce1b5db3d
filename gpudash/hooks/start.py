"""Creates the tracker, the driver and the levers, once in a process."""

import os
from contextlib import suppress

from gpudash.hooks import explicit
from gpudash.hooks.driver import Driver
from gpudash.hooks.levers import ScriptLevers
from gpudash.hooks.observer import PHASES
from gpudash.hooks.patches import patch
from gpudash.hooks.tracker import Tracker
from gpudash.instrument import stack_signal
from gpudash.rendezvous import Rendezvous


def start(rendezvous: Rendezvous) -> None:
    """Look for a training in this process, and report it through the run's directory."""
    driver = Driver(rendezvous, PHASES, ScriptLevers)
    driver.tracker = tracker = Tracker(driver)
    tracker.failed = driver.failed
    os.register_at_fork(after_in_child=driver.forget)
    patch(tracker)
    explicit.listener = tracker
    with suppress(OSError):  # for example on a full disk
        stack_signal.answer(rendezvous)
