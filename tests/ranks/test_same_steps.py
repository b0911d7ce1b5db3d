"""Blocks of the same steps on several ranks: which steps they hold, and their exact means."""

import pytest
from msgspec.structs import replace as changed

from gpudash.protocol.training import Step
from gpudash.ranks.same_steps import MOST_SAMPLES, SameSteps
from tests.having import having

TEN_MS = 100.0
"""A step time of which a block of a second holds ten."""


OWN = ("data_ms", "host_ms", "padding_tokens")


def step(number, step_ms=TEN_MS, *, phases=None, parts=None, **values):
    phases = {"forward": 40.0, "backward": 30.0, "communication": 10.0} | (phases or {})
    about = {"samples": 8, "tokens": None, **values}
    times = {"data_ms": 0.0, "host_ms": 50.0, **{f"{name}_ms": ms for name, ms in phases.items()}}
    times |= {name: about.pop(name) for name in OWN if name in about}
    return Step(
        step=number,
        segment=0,
        finished_s=0.0,
        step_ms=step_ms,
        values={name: ms for name, ms in times.items() if ms is not None},
        parts_ms={} if parts is None else {"backward": parts},
        **about,
    )


def blocks_of(told):
    """The blocks that these steps complete, by the step that completes them."""
    same = SameSteps()
    found = ((one.step, same.add(rank, one)) for rank, one in told)
    return {number: block for number, block in found if block is not None}


def first_block(of_rank, ranks=2):
    """The block of steps 0 to 9, where `of_rank(rank, number)` says what a step is like."""
    told = [
        (rank, step(number, **of_rank(rank, number)))
        for number in range(21)
        for rank in range(ranks)
    ]
    return blocks_of(told)[20]


# ── which steps ─────────────────────────────────────────────────────────────────────────────


def test_a_block_of_a_second_is_complete_one_block_later():
    assert list(blocks_of((rank, step(n)) for n in range(41) for rank in (0, 1))) == [20, 30, 40]


def test_of_a_run_that_is_joined_within_a_block_each_step_counts():
    waits_ms = {1: 10.0}
    told = [
        (rank, step(n, data_ms=waits_ms.get(n, 0.0))) for n in range(1, 22, 2) for rank in (0, 1)
    ]
    assert blocks_of(told)[21].ranks[0].data_ms == 10.0 / 5


def test_a_rank_may_be_a_block_late_and_no_more():
    before = [(rank, step(n)) for n in range(10) for rank in (0, 1)]
    second = [(0, step(n)) for n in range(10, 21)]
    late = [(1, step(n)) for n in range(10, 20)]
    assert set(blocks_of([*before, *second, *late, (0, step(30))])) == {20, 30}
    too_late = [(rank, step(n)) for n in range(10) for rank in (0, 1)]
    assert set(blocks_of([*before, *second, *too_late, (0, step(30))])) == {20}


def test_of_many_short_steps_the_first_are_kept():
    late = dict.fromkeys(range(MOST_SAMPLES, 200), 10.0)
    told = [(rank, step(n, 5.0, data_ms=late.get(n, 0.0))) for n in range(401) for rank in (0, 1)]
    assert blocks_of(told)[400].ranks[0].data_ms == 0.0


@pytest.mark.parametrize(
    ("step_ms", "is_block"), [(50.0, True), (44.0, False), (200.0, True), (270.0, False)]
)
def test_a_step_time_of_more_than_twice_or_less_than_half_begins_again(step_ms, is_block):
    told = [(rank, step(n, step_ms if n else TEN_MS)) for n in range(21) for rank in (0, 1)]
    assert bool(blocks_of(told)) == is_block


def test_steps_twice_as_long_as_usual_are_left_out_and_two_are_enough():
    block = first_block(lambda _rank, number: {"step_ms": 200.0 if number > 6 else TEN_MS})
    assert block.ranks[0].own_ms == 90.0
    few = [(0, step(n)) for n in range(10)] + [(1, step(n)) for n in (3, 4)] + [(0, step(20))]
    assert set(blocks_of(few)[20].ranks) == {0, 1}
    fewer = [(0, step(n)) for n in range(10)] + [(1, step(3)), (0, step(20))]
    assert blocks_of(fewer) == {}


# ── their means ─────────────────────────────────────────────────────────────────────────────


def counted(rank, number, count, wait_ms):
    """So many steps, measured together, of which each waits so long for data on rank 1."""
    waits = {"data_ms": wait_ms * rank, "host_ms": 50.0}
    one = step(number, TEN_MS + wait_ms, count=count)
    return rank, changed(one, values=waits, samples=8 * count)


def burst(wait_ms):
    """Ten steps, of which the first and the last are measured in full, and those between wait."""
    told = [
        each
        for rank in (0, 1)
        for each in ((rank, step(0)), counted(rank, 8, 8, wait_ms), (rank, step(9)))
    ]
    return blocks_of([*told, (0, step(20))])


def test_waits_for_data_of_steps_that_are_not_measured_in_full_count_as_much():
    block = burst(5.0)[20]
    assert (block.ranks[0].data_ms, block.ranks[1].data_ms) == (0.0, 4.0)
    assert (block.late_ms, block.data_ms) == ({0: -4.0, 1: 4.0}, {0: -4.0, 1: 4.0})
    assert (block.ranks[1].own_ms, block.ranks[1].phases_ms[""]) == (94.0, 24.0)


def test_a_single_long_wait_is_left_out_as_a_step_is_that_is_measured_alone():
    assert burst(15.0)[20].late_ms == {0: 0.0, 1: 0.0}


def test_steps_without_a_measured_communication_make_no_blocks():
    assert blocks_of(counted(rank, n, 4, 5.0) for n in range(41) for rank in (0, 1)) == {}


def test_a_rank_has_the_means_of_its_steps():
    def like(_rank, number):
        more = (-1) ** number
        return {
            "phases": {"communication": 10.0 - more, "overlap": 5.0},
            "tokens": 1000 + 100 * more,
            "data_ms": 4.0 if number % 2 else None,
            "host_ms": 40.0 if number % 2 else None,
        }

    rank = first_block(like).ranks[0]
    assert (rank.own_ms, rank.wait_ms, rank.least_wait_ms, rank.apart_ms) == (90, 10, 9, 60)
    assert rank == having(
        own_deviation_ms=pytest.approx((10 / 9) ** 0.5),
        own_error_ms=pytest.approx(1 / 3),
        by_work_ms=pytest.approx(rank.own_deviation_ms),
        phases_ms={"forward": 40.0, "backward": 30.0, "": 25.0},
    )
    assert (rank.data_ms, rank.host_ms, rank.work) == (2.0, 20.0, 1000.0)


def test_work_is_that_of_a_single_step_in_samples_if_tokens_are_unknown():
    assert first_block(lambda _rank, _number: {"samples": 16, "count": 2}).ranks[0].work == 8.0
    assert first_block(lambda _rank, _number: {"samples": None}).ranks[0].work is None


def test_padding_is_as_much_work_as_other_tokens():
    def padded(_rank, number):
        return {"tokens": 200 + 2 * number, "padding_tokens": 900.0 - number, "count": 2}

    assert first_block(padded).ranks[0].work == 1000.0


def test_a_pass_is_measured_up_to_the_end_of_each_part_and_begins_before_the_first_one():
    block = first_block(lambda _rank, _number: {"parts": (10.0, 5.0)})
    assert block.ranks[0].beside_ms == (25.0, 30.0)
    unlike = first_block(lambda _rank, n: {"parts": (10.0, 20.0) if n % 2 else (5.0, 10.0, 15.0)})
    assert unlike.ranks[0].beside_ms == (30.0,)


def test_a_hosts_excess_is_no_more_than_that_of_its_busy_time_and_its_data_wait():
    block = first_block(lambda rank, _: {"host_ms": 50.0 + 5 * rank, "data_ms": 8.0 - 3 * rank})
    assert (block.data_ms, block.host_ms) == ({0: 3.0, 1: -3.0}, {0: -5.0, 1: 2.0})
