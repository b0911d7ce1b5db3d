"""Between two blocks a loader rests with its workers, and takes over again.

A module of tests imports these, and has a fixture `feed`: the loader of a script or of a workload,
which has one worker. `take` checks that what comes is next in order.
"""

import os
import signal
from multiprocessing import active_children

import pytest

from tests.waiting import until

MORE = 7
"""Batches: more than three workers are asked for ahead."""


def pids():
    return {process.pid for process in active_children()}


def in_blocks_of(feed, workers):
    """Begin blocks with so many workers each, one after the other."""
    for number in workers:
        feed.block(number)
        feed.take()


def test_workers_rest_and_take_over_again(feed):
    started = [pids()]
    for workers in "212121":
        in_blocks_of(feed, workers)
        started.append(pids() - set().union(*started))
    assert [len(one) for one in started] == [1, 2, feed.started_anew, 0, 0, 0, 0]


def test_two_loaders_are_kept_at_most(feed):
    for before, workers in zip("123132", "231321", strict=True):
        in_blocks_of(feed, workers)
        assert len(pids()) <= int(before) + int(workers)


def test_none_rests_once_the_blocks_have_ended(feed):
    in_blocks_of(feed, "21")
    assert len(pids()) == 2 + 1
    feed.blocks_end()
    assert len(pids()) == 1


@pytest.mark.parametrize("blocks", ["2", "21"])
def test_no_worker_is_left_at_the_end(feed, blocks):
    in_blocks_of(feed, blocks[:-1])
    feed.block(blocks[-1])
    assert len(pids()) == 2 + 1
    feed.leave()
    assert not pids()


def test_a_resting_worker_that_is_killed_harms_nothing_and_is_replaced(feed):
    own = pids()
    in_blocks_of(feed, "2")
    rests = pids() - own
    in_blocks_of(feed, "1")
    os.kill(min(rests), signal.SIGKILL)
    until(lambda: len(pids() & rests) == 1)
    in_blocks_of(feed, "2")
    assert not pids() & rests
