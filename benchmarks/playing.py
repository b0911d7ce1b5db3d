"""A program of a dashboard whose engine plays snapshots from a thread, as the real one does."""

PLAYING = """
import threading, time
from tests.tui.fake_engine import FakeEngine, training
from gpudash.tui.app import Dashboard

class Playing(FakeEngine):
    def __init__(self, snapshots, rate_hz):
        super().__init__()
        self.snapshots, self.rate_hz = snapshots, rate_hz

    def start(self, listener):
        super().start(listener)
        threading.Thread(target=self.play, daemon=True).start()

    def play(self):
        begin, count = time.monotonic(), 0
        while True:
            self.publish(self.snapshots[count % len(self.snapshots)])
            count += 1
            time.sleep(max(begin + count / self.rate_hz - time.monotonic(), 0))
"""
