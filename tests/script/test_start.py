"""`start` connects tracker and driver, also after a fork."""

import os

from gpudash.rendezvous import Rendezvous
from gpudash.script import entry, explicit
from gpudash.script.driver import Driver


class Tracker:
    """A tracker that reports nothing."""

    def __init__(self, observer: Driver) -> None:
        self.observer, self.failed, self.meter = observer, None, self
        self.clock = self.losses = None
        self.active, self.tell = True, print


def test_tracker_and_driver_are_connected_and_reset_in_a_forked_child(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(entry, "Tracker", Tracker)
    monkeypatch.setattr(explicit, "tell", None)
    patched: list[Tracker] = []
    monkeypatch.setattr(entry, "patch", patched.append)
    answering: list[Rendezvous] = []
    monkeypatch.setattr(entry.stack_server, "answer", answering.append)
    entry.start(Rendezvous(tmp_path))
    assert [one.path for one in answering] == [tmp_path]
    (tracker,) = patched
    assert tracker.observer.tracker is tracker
    assert tracker.failed == tracker.observer.failed
    assert explicit.tell == tracker.tell
    child = os.fork()
    if not child:
        os._exit(tracker.active)
    assert os.waitpid(child, 0)[1] == 0
