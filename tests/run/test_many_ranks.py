"""A session that is told of many ranks, as lines: the slow one is in its snapshots."""

import msgspec

from gpudash.protocol import Hello, Plan
from gpudash.run.session import Session
from gpudash.run.source import Decoder, Ended, Source
from gpudash.snapshot import Snapshot
from tests.simulated_ranks import Ranks, enveloped, start

RANKS = 32


class Lines(Source):
    """Tells everything at once, and has ended then."""

    def __init__(self, lines):
        self._lines = iter(lines)
        self._decoder = Decoder("it")
        self._told = False

    def read(self):
        found = [self._decoder.decode(line) for line in self._lines]
        self._told = self._told or not found
        return found

    def ended(self):
        return Ended("it has ended") if self._told else None

    def close(self):
        pass


class Screen:
    def __init__(self):
        self.newest = Snapshot()

    def on_snapshot(self, snapshot):
        self.newest = snapshot

    def on_log(self, lines):
        pass

    def on_failure(self, failure):
        pass


def test_a_session_names_the_slow_rank_of_many(tmp_path):
    ranks = Ranks(RANKS, delay=lambda _step, rank: {"backward": 2.0} if rank == 21 else {})
    hello = [(0, Hello(can=("record",)))]
    starts = [(rank, start(rank, world_size=RANKS)) for rank in range(RANKS)]
    told = enveloped([*hello, *starts, *ranks.train(15)])
    lines = [msgspec.json.encode(envelope) for envelope in told]
    screen = Screen()
    plan = Plan(workload="", settings={})
    source = Lines(lines)
    session = Session(plan, start_source=lambda _plan: source, beside=(), clock=lambda: 0.0)
    session.record(tmp_path / "run.csv")
    session.start(screen)
    try:
        assert session.wait(60)
    finally:
        session.close()
    straggler = screen.newest.straggler
    assert (len(screen.newest.ranks), straggler.rank, straggler.phase) == (RANKS, 21, "backward")
