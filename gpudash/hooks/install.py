"""Puts the hooks into a training process: tracker, driver and levers brought together."""

import os

from gpudash.hooks.driver import Driver
from gpudash.hooks.levers import ScriptLevers
from gpudash.hooks.patches import patch
from gpudash.hooks.tracker import PHASES, Tracker
from gpudash.rendezvous import of_environment


def install() -> None:
    """Have torch, just imported, tell of the training in this process, if it is of a run."""
    rendezvous = of_environment()
    if rendezvous is None:
        return
    driver = Driver(rendezvous, PHASES, ScriptLevers)
    driver.tracker = tracker = Tracker(driver)
    tracker.failed = driver.failed
    patch(tracker)
    os.register_at_fork(after_in_child=driver.forget)
