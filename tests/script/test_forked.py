"""A forked child, such as a DataLoader's worker, must not free CUDA objects."""

from tests.warm import python

PROGRAM = """
import os, sys
from gpudash.script.driver import Driver
from gpudash.script.tracker import Tracker
from gpudash.rendezvous import Rendezvous
from pathlib import Path

class Event:
    def __del__(self):
        os.write(1, b"freed\\n")

driver = Driver(Rendezvous(Path()), (), None)
driver.tracker = tracker = Tracker(driver)
tracker.meter.clock, driver._reports = Event(), Event()
if not os.fork():
    driver.forget()
    tracker.forget()
    sys.exit()
os.wait()
os._exit(0)
"""


def test_a_forked_child_frees_none_of_its_parents_objects_even_at_exit():
    assert python("-c", PROGRAM).stdout == ""
