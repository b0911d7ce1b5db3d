"""Ranks obey at the same step: the leader says before which, and what."""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from gpudash.instrument.pipes import CommandPipe, ParentGone
from gpudash.protocol import AnyCommand, Change, Memory, Pause, Profile
from gpudash.worker import turns
from gpudash.worker.turns import Follower, Leader

PROFILE = Profile(id=2, steps=10, path="p.json")


class Pair:
    """A leader with its commands, and a follower."""

    def __init__(self, path: Path) -> None:
        reading, self._writing = os.pipe()
        found: list[Follower | Leader] = []
        meeting = Thread(target=lambda: found.append(Follower(path)))
        meeting.start()
        self.leader = Leader(CommandPipe(reading), path, 1)
        meeting.join()
        self.follower = found[0]

    def ask(self, *commands: AnyCommand) -> None:
        os.write(self._writing, b"".join(msgspec.json.encode(one) + b"\n" for one in commands))

    def close(self) -> None:
        os.close(self._writing)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path / "leader")
    yield pair
    pair.close()


def test_a_follower_takes_the_leaders_turns_in_their_order(pair: Pair):
    pair.ask(Change(id=1, settings={"batch_size": "4"}))
    told = [pair.leader.take(taken) for taken in (0, 1)]
    assert told[0] is not None
    assert [one.id for one in told[0].commands] == [1]
    assert [pair.follower.take(0), pair.follower.take(1)] == told


def test_turns_grow_apart_until_they_fill_the_time_between_two_looks(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    now_s = [100.0]
    monkeypatch.setattr(turns.time, "monotonic", lambda: now_s[0])
    taken, apart = 0, []
    for _ in range(8):
        turn = pair.leader.take(taken)
        assert turn is not None
        apart.append(turn.until - taken)
        now_s[0] += (turn.until - taken) * 0.0026
        taken = turn.until
    assert apart == [1, 2, 4, 8, 9, 9, 9, 9]


def test_while_paused_a_turn_comes_with_a_command_alone(pair: Pair):
    assert pair.leader.take(5, paused=True) is None
    assert pair.follower.take(5, paused=True) is None
    pair.ask(Pause(id=1))
    assert pair.leader.take(5, paused=True) == pair.follower.take(5, paused=True) is not None


def test_a_profile_is_the_leaders_own_and_the_others_step_on_beside_it(pair: Pair):
    pair.ask(Pause(id=1), PROFILE, Memory(id=3))
    kinds = [type(one) for _ in range(3) for one in pair.leader.take(0).commands]
    assert kinds == [Pause, Profile, Memory]
    told = [pair.follower.take(0) for _ in range(3)]
    assert [[type(one) for one in turn.commands] for turn in told if turn] == [[Pause], [], []]
    assert told[1] is not None
    assert told[1].until > PROFILE.steps + 2


def test_a_turn_that_only_keeps_time_leaves_the_commands_waiting(pair: Pair):
    pair.ask(Pause(id=1))
    assert pair.leader.keep_time(0).commands == ()
    turn = pair.leader.take(1)
    assert turn is not None
    assert [one.id for one in turn.commands] == [1]


def test_a_follower_whose_leader_is_gone_ends(pair: Pair):
    del pair.leader
    with pytest.raises(ParentGone):
        pair.follower.take(0)
