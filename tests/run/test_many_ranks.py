"""A session over the lines of many ranks: the slow one is in its snapshots."""

import msgspec

from gpudash.protocol.commands import Plan
from gpudash.protocol.training import Hello
from gpudash.run.session import Session
from gpudash.run.source import Decoder, Source
from tests.run.screens import Screen
from tests.simulated_ranks import Ranks, enveloped, start

RANKS = 16


class Lines(Source):
    """Sends everything at once, and then ends."""

    def __init__(self, lines):
        self._lines = iter(lines)
        self._decoder = Decoder("it")
        self._told = False

    def read(self):
        found = [self._decoder.decode(line) for line in self._lines]
        self._told = self._told or not found
        return found

    def ended(self):
        return "it has ended" if self._told else None

    def close(self):
        pass


def test_a_session_names_the_slow_rank_of_many(tmp_path):
    ranks = Ranks(RANKS, delay=lambda _step, rank: {"backward": 2.0} if rank == 11 else {})
    hello = [(0, Hello(can=("record",)))]
    starts = [(rank, start(rank, world_size=RANKS)) for rank in range(RANKS)]
    session_of = enveloped([*hello, *starts, *ranks.train(12)])
    lines = [msgspec.json.encode(envelope) for envelope in session_of]
    screen = Screen()
    plan = Plan(workload="", settings={})
    source = Lines(lines)
    session = Session(plan, start_source=lambda _plan: source, beside=(), clock=lambda: 0.0)
    session.begin_sink("recording", tmp_path / "run.csv")
    session.start(screen)
    try:
        assert session.wait(60)
    finally:
        session.close()
    straggler = screen.newest.straggler
    assert (len(screen.newest.ranks), straggler.rank, straggler.phase) == (RANKS, 11, "backward")


class Lasting(Lines):
    """Sends everything at once, and does not end."""

    def ended(self):
        return None


def test_after_a_restart_the_ranks_are_those_that_train_now():
    def session_of(kind, seconds):
        said = [(0, Hello()), *((rank, start(rank, world_size=2)) for rank in range(2))]
        envelopes = list(enveloped([*said, *Ranks(2).train(seconds)]))
        return kind(map(msgspec.json.encode, envelopes)), envelopes[-1].body.total_steps

    (first, many), (second, few) = session_of(Lasting, 15), session_of(Lines, 2)
    plan, sources, screen = Plan(workload="", settings={}), iter([first, second]), Screen()
    session = Session(plan, start_source=lambda _plan: next(sources), beside=(), clock=lambda: 0.0)
    session.start(screen)
    try:
        while not any(row.steps == many for row in screen.newest.ranks):
            session.wait(0.01)
        session.restart(plan)
        while screen.newest.state != "failed":
            session.wait(0.01)
    finally:
        session.close()
    assert [row.steps for row in screen.newest.ranks] == [few, few]
