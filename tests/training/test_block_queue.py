import itertools

import pytest

from gpudash.protocol.commands import Block, Blocks
from gpudash.training.block_queue import BlockQueue, difference

HOME = {"pipelined": "off", "batch_size": "8"}


def block(number, min_steps=3, min_s=0.0):
    return Block(number=number, changes={"pipelined": "on"}, min_steps=min_steps, min_s=min_s)


RUNS = itertools.count(1)


def take_in(queue, blocks, settings, run=None):
    """Give these blocks to the run in progress, or begin another run."""
    run = run or queue.run or next(RUNS)
    return queue.take_in(Blocks(id=run, run=run, blocks=tuple(blocks)), settings)


def queue_of(*numbers, **length):
    queue = BlockQueue()
    take_in(queue, [block(number, **length) for number in numbers], HOME)
    return queue


def begun(*numbers, at=0, warmup_steps=0, burst_steps=1, **length):
    """Return a queue of these blocks; the first of them was entered at this step."""
    queue = queue_of(*numbers or (0,), **length)
    queue.take()
    queue.entered(at, warmup_steps, burst_steps)
    return queue


def numbers_left(queue):
    return [taken.number for taken in iter(queue.take, None)]


def test_blocks_run_in_order_and_the_baseline_is_kept():
    queue = queue_of(4, 5)
    assert queue.running
    assert queue.baseline == HOME
    assert queue.is_over(0, 0.0)  # so that the first one begins
    assert numbers_left(queue) == [4, 5]
    assert queue.running  # until the settings are back at the baseline
    queue.end(1.0, "")
    assert not queue.running


OVER = {
    # 101 and 102 are its warm-up, 103 to 105 are measured; during the last step no batch is
    # prepared, so it is not
    "its warm-up, its steps and one more": (3, 2, 1, [106, 107, 108, 109]),
    # a new loader's bursts always begin alike, so a partial one would be wrong each time:
    # 103 to 110 are the first two bursts, 111 is left out
    "whole bursts": (3, 2, 4, [111, 115, 119]),
    "two short bursts, however few steps are asked for": (1, 0, 2, [105, 107, 109]),
}


@pytest.mark.parametrize(("min_steps", "warmup", "burst", "over"), OVER.values(), ids=OVER)
def test_a_block_lasts(min_steps, warmup, burst, over):
    queue = begun(at=100, warmup_steps=warmup, burst_steps=burst, min_steps=min_steps)
    assert [step for step in range(100, over[-1] + 1) if queue.is_over(step, float(step))] == over


def test_a_block_lasts_its_seconds_too_and_its_warm_up_does_not_count():
    queue = begun(warmup_steps=2, min_steps=1, min_s=10.0)
    assert queue.is_over(1, 1000.0) is False
    assert not queue.is_over(2, 2000.0)  # warm: the seconds begin here
    assert not queue.is_over(50, 2009.9)
    assert queue.is_over(51, 2010.0)


def test_every_block_has_its_own_warm_up_and_time():
    queue = begun(0, 1, min_steps=1, min_s=1.0)
    assert not queue.is_over(0, 0.0)
    assert queue.is_over(2, 1.0)
    queue.take()
    queue.entered(2, 0)
    assert not queue.is_over(3, 5.0)
    assert queue.is_over(4, 6.0)


def test_new_blocks_replace_waiting_ones_and_the_baseline_stays():
    queue = begun(0, 1, 2)
    take_in(queue, [block(7), block(8)], {"pipelined": "on", "batch_size": "8"})
    assert queue.baseline == HOME
    assert not queue.is_over(1, 1.0)  # the block in progress runs to its end
    assert numbers_left(queue) == [7, 8]


def test_a_block_that_was_begun_is_never_run_again():
    """A late command may still name blocks that the worker has begun since."""
    queue = queue_of(0, 1, 2, 3)
    queue.take()
    queue.take()
    take_in(queue, [block(1), block(2), block(3)], HOME)
    assert numbers_left(queue) == [2, 3]
    ended = queue.end(1.0, "")
    assert take_in(queue, [block(3)], HOME, ended.run) is False
    assert not queue.running


def test_a_command_without_blocks_ends_the_block_in_progress():
    queue = begun(0, 1)
    take_in(queue, [], HOME)
    assert queue.is_over(0, 0.0)
    assert queue.take() is None
    assert queue.baseline == HOME


def test_a_late_command_with_finished_blocks_ends_nothing():
    queue = begun(0, 1)
    take_in(queue, [block(0)], HOME)
    assert queue.current == block(0)
    assert not queue.is_over(1, 1.0)


@pytest.mark.parametrize("taken", [0, 1])
def test_ending_a_run_clears_the_queue(taken):
    queue = queue_of(0, 1)
    for _ in range(taken):
        queue.take()
    queue.end(1.0, "")
    assert not queue.running
    assert queue.take() is None
    take_in(queue, [], HOME)
    assert not queue.running
    take_in(queue, [block(2)], {"pipelined": "on"})
    assert queue.baseline == {"pipelined": "on"}  # what is active now


@pytest.mark.parametrize("burst", [1, 4])
@pytest.mark.parametrize(("min_steps", "min_s"), [(3, 0.0), (3, 0.5), (200, 0.5), (3, 0.004)])
def test_the_steps_left_are_those_after_which_the_block_is_over(min_steps, min_s, burst):
    step_s = 0.01
    queue = begun(at=10, warmup_steps=2, burst_steps=burst, min_steps=min_steps, min_s=min_s)
    said = [queue.steps_left(step, step * step_s, step_s) + step for step in range(10, 13)]
    ends = next(step for step in itertools.count(10) if queue.is_over(step, step * step_s))
    assert said == [ends] * 3
    assert queue.pace_s(ends, ends * step_s) == pytest.approx(step_s)


def test_a_block_faster_than_predicted_has_steps_left():
    queue = begun(min_s=1.0)
    assert not queue.is_over(0, 0.0)
    assert not queue.is_over(50, 0.5)  # steps take half of the predicted time
    assert queue.steps_left(50, 0.5, 0.01) == 50


def test_a_run_begins_once():
    first, second = (Blocks(id=run, run=run, blocks=(block(0),)) for run in (1, 2))
    queue = BlockQueue()
    assert queue.begins(first)
    queue.take_in(first, HOME)
    assert not queue.begins(first)
    assert queue.begins(second)  # in its place
    assert not queue.begins(Blocks(id=3, run=2, blocks=()))
    queue.end(1.0, "")
    assert not queue.begins(first)  # a late command must not start a decision


def test_a_pace_needs_a_step_and_time_after_the_warm_up():
    queue = begun(at=10, warmup_steps=2)
    assert not queue.is_over(12, 5.0)  # the moment from which it counts
    paces = [queue.pace_s(*at) for at in ((11, 6.0), (12, 6.0), (13, 5.0), (13, 6.0), (14, 6.0))]
    assert paces == [None, None, None, 1.0, 0.5]


def test_without_a_block_in_progress_one_more_step_is_needed():
    assert queue_of(0).steps_left(0, 0.0, 0.01) == 1
    queue = begun(min_steps=3)
    assert [queue.steps_left(step, 0.0, 0.01) for step in (0, 3, 4, 9)] == [4, 1, 1, 1]


def test_a_difference_leads_from_one_to_the_other():
    assert difference(HOME, HOME) == {}
    assert difference(HOME, {**HOME, "batch_size": "16", "seed": "1"}) == {
        "batch_size": "16",
        "seed": "1",
    }
