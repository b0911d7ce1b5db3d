"""Ranks obey at the same step: the leader sends the commands and the step."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from gpudash.instrument.pipes import CommandPipe, ParentGone
from gpudash.protocol import AnyCommand, Change, Memory, Pause, Profile
from gpudash.worker import lockstep
from gpudash.worker.lockstep import Follower, Leader

MANY = 1024
"""The number of descriptors that select can take."""
PROFILE = Profile(id=2, steps=10, path="p.json")


class Pair:
    """A leader with its commands, and a follower."""

    def __init__(self, path: Path) -> None:
        reading, self._writing = os.pipe()
        found: list[Follower | Leader] = []
        connecting = Thread(target=lambda: found.append(Follower(path)))
        connecting.start()
        self.leader = Leader(CommandPipe(reading), path, 1)
        connecting.join()
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


def test_a_follower_receives_the_leaders_sync_points_in_order(pair: Pair):
    pair.ask(Change(id=1, settings={"batch_size": "4"}))
    synced = [pair.leader.sync(taken) for taken in (0, 1)]
    assert synced[0] is not None
    assert [one.id for one in synced[0].commands] == [1]
    assert [pair.follower.sync(0), pair.follower.sync(1)] == synced


def test_sync_points_move_apart_until_25_ms_lie_between_them(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    now_s = [100.0]
    monkeypatch.setattr(lockstep.time, "monotonic", lambda: now_s[0])
    taken, apart = 0, []
    for _ in range(8):
        point = pair.leader.sync(taken)
        assert point is not None
        apart.append(point.next_at - taken)
        now_s[0] += (point.next_at - taken) * 0.0026
        taken = point.next_at
    assert apart == [1, 2, 4, 8, 9, 9, 9, 9]


def test_a_follower_with_more_than_1024_descriptors_waits_too(tmp_path: Path) -> None:
    """Loader workers take four descriptors each, and start before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < MANY + 64:
        pytest.skip("so many descriptors are not allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, MANY + 64), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(MANY)]
    pair = Pair(tmp_path / "leader")
    try:
        assert pair.follower.sync(5, paused=True) is None
        synced = pair.leader.sync(5)
        assert pair.follower.wait(10)
        assert pair.follower.sync(5, paused=True) == synced
    finally:
        for one in held:
            os.close(one)
        pair.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_while_paused_only_a_command_makes_a_sync_point(pair: Pair):
    assert pair.leader.sync(5, paused=True) is None
    assert pair.follower.sync(5, paused=True) is None
    pair.ask(Pause(id=1))
    assert pair.leader.sync(5, paused=True) == pair.follower.sync(5, paused=True) is not None


def test_only_the_leader_profiles_while_the_others_step_on(pair: Pair):
    pair.ask(Pause(id=1), PROFILE, Memory(id=3))
    kinds = [type(one) for _ in range(3) for one in pair.leader.sync(0).commands]
    assert kinds == [Pause, Profile, Memory]
    synced = [pair.follower.sync(0) for _ in range(3)]
    assert [[type(one) for one in point.commands] for point in synced if point] == [[Pause], [], []]
    assert synced[1] is not None
    assert synced[1].next_at > PROFILE.steps + 2


def test_a_time_sync_leaves_the_commands_waiting(pair: Pair):
    pair.ask(Pause(id=1))
    assert pair.leader.sync_time(0).commands == ()
    point = pair.leader.sync(1)
    assert point is not None
    assert [one.id for one in point.commands] == [1]


def test_a_follower_ends_when_its_leader_has_ended(pair: Pair):
    del pair.leader
    with pytest.raises(ParentGone):
        pair.follower.sync(0)
