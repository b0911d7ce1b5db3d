"""The slow rank of a replay is that of the live run, at the same moments and at every row length.

The live run is a real session that is told of four simulated ranks, on a made-up clock.
"""

from typing import TypeAlias

import pytest

from gpudash.protocol.commands import Plan
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.session import Straggler
from gpudash.protocol.training import Hello
from tests.run.test_replay import Driven, Made, Replayed
from tests.run.told import Told
from tests.simulated_ranks import STEP_MS, Ranks, enveloped, start

RANKS, SLOW = 4, 2
Shown: TypeAlias = dict[float, Straggler | None]
LOOKS_S = 0.5
"""Seconds between two snapshots."""


def messages(slower_pct: float, seconds: float, then_s: float = 0.0) -> list[Envelope]:
    """Return what the ranks send; one is slower in its backward pass, and then it is not."""
    parts = {"backward": slower_pct / 100 * STEP_MS}
    slow_steps = 1e3 * seconds / STEP_MS
    ranks = Ranks(
        RANKS,
        delay=lambda step, rank: parts if rank == SLOW and step < slow_steps else {},
    )
    begun = [(rank, start(rank, world_size=RANKS)) for rank in range(RANKS)]
    hello = [(0, Hello(can=("record",)))]
    return list(enveloped([*hello, *begun, *ranks.train(seconds + then_s)]))


class Watched(Driven):
    """A session that is told of the ranks on a made-up clock."""

    def __init__(self, sent: list[Envelope], interval_s: float = 0.5) -> None:
        self.time = Made(0.0)
        super().__init__(
            Plan(workload="", settings={}),
            interval_s=interval_s,
            start_source=lambda _plan: Told(sent, self.time),
            beside=(),
            clock=self.time,
        )

    def until(self, until_s: float) -> Shown:
        """Take turns; return the slow rank at each moment."""
        shown = {}
        while self.time.now_s < until_s:
            self.time.now_s += LOOKS_S
            shown[self.time.now_s] = self.turn().straggler
        return shown

    def end_at(self, at_s: float) -> None:
        """Read the last messages and end, without a snapshot in between."""
        self.time.now_s = at_s
        self._requests.obey()
        self._read_training()
        self._end_training("it has ended")


def live(path, sent, interval_s=0.5) -> Shown:
    """Record a run; return the slow rank at each moment."""
    session = Watched(sent, interval_s)
    session.begin_sink("recording", path)
    shown = session.begin().until(sent[-1].sent_s)
    session.close()
    return shown


def named(shown: Shown) -> set[tuple[int, str] | None]:
    return {one and (one.rank, one.phase) for one in shown.values()}


@pytest.fixture(scope="module")
def slow():
    """A rank is slow by 20 % of a step for 12 s, and recovers."""
    return messages(20, 12, then_s=14)


@pytest.mark.parametrize("interval_s", [0.5, 5.0])
def test_a_replay_names_the_rank_that_was_named_live_and_when(slow, tmp_path, interval_s):
    path = tmp_path / "run.csv"
    shown = live(path, slow, interval_s)
    assert named(shown) == {None, (SLOW, "backward")}
    assert list(shown.values())[-1] is None
    again = Replayed(path)
    assert {at_s: again.at(at_s).straggler for at_s in shown} == shown


def test_of_equal_ranks_none_is_named_in_a_replay(tmp_path):
    shown = live(tmp_path / "run.csv", messages(0, 12))
    again = Replayed(tmp_path / "run.csv")
    assert named(shown) == named({at_s: again.at(at_s).straggler for at_s in shown}) == {None}


def test_a_recording_begun_while_a_rank_is_slow_names_it_from_its_beginning(slow, tmp_path):
    session = Watched(slow).begin()
    session.until(11.0)
    session.begin_sink("recording", tmp_path / "run.csv")
    shown = session.until(12.0)
    session.close()
    assert named(shown) == {(SLOW, "backward")}
    again = Replayed(tmp_path / "run.csv")
    assert named({0.5: again.at(0.5).straggler}) == {(SLOW, "backward")}


def test_a_rank_that_is_found_slow_at_the_very_end_is_in_the_log(slow, tmp_path):
    session = Watched(slow)
    session.begin_sink("recording", tmp_path / "run.csv")
    session.begin().end_at(11.0)
    again = Replayed(tmp_path / "run.csv")
    assert named({11.0: again.at(11.0).straggler}) == {(SLOW, "backward")}
