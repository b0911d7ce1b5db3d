"""A proof by slowing: its blocks, its slopes, and when it ends."""

from itertools import cycle

import pytest

from gpudash.compare import slowing
from gpudash.compare.block_trial import BLOCK_S
from gpudash.compare.slowing import FEWEST_ROUNDS, MOST_S, PARTS, PRECISION, SlowingTrial
from tests.scripted_run import host
from tests.scripted_worker import Conducted, Worker

STEP_MS = 50.0
SIDES = 1 + len(PARTS)


def conducted(slopes, *, noise=(0.0,), cannot=None):
    """A training whose steps grow by these shares of a part's delay."""
    wobble = cycle(noise)
    worker = Worker(lambda _settings: STEP_MS + next(wobble))
    worker.grows_ms = lambda slow: slopes.get(slow.part, 0.0) * slow.ms
    worker.cannot_slow = lambda slow: (cannot or {}).get(slow.part)
    return Conducted(SlowingTrial(STEP_MS), worker)


def slopes_of(done):
    return {one.part: one for one in done.experiment.shown().slopes}


def test_each_round_has_a_block_without_delay_and_one_for_each_part():
    blocks = SlowingTrial(STEP_MS).begin(Worker().start(), 0)
    assert [one.number for one in blocks] == list(range(len(blocks)))
    rounds = [blocks[at : at + SIDES] for at in range(0, len(blocks), SIDES)]
    for one in rounds:
        assert {block.slow.part for block in one if block.slow.ms} == set(PARTS)
        assert {block.slow.ms for block in one} == {0.0, 0.1 * STEP_MS}  # all are of one kind
    assert all(block.changes == {} and block.min_s == BLOCK_S for block in blocks)
    orders = {tuple((block.slow.part, block.slow.ms) for block in one) for one in rounds}
    assert len(orders) > 1  # a drift must not favour a part


def test_a_part_on_the_critical_path_has_slope_one_and_a_hidden_one_zero():
    done = conducted({"loader": 1.0, "host": 0.0}).run()
    found = slopes_of(done)
    assert found["loader"].slope == pytest.approx(1.0)
    assert found["host"].slope == pytest.approx(0.0)
    assert found["loader"].low <= 1.0 <= found["loader"].high
    assert done.experiment.shown().rounds == FEWEST_ROUNDS
    assert done.experiment.shown().is_over
    assert done.worker.settings == Worker().settings


def test_it_goes_on_until_each_slope_is_known_well_enough():
    done = conducted({"device": 1.0}, noise=(0.0, 5.0, 1.0, 8.0, 2.0, 0.5, 6.0)).run()
    shown = done.experiment.shown()
    assert shown.rounds > FEWEST_ROUNDS
    assert all(one.high - one.low <= 2 * PRECISION for one in shown.slopes)


def test_it_ends_after_a_minute_with_what_it_has():
    done = conducted({}, noise=(0.0, 300.0, 10.0, 500.0, 200.0, 30.0, 400.0)).run()
    trained_s = done.worker.now_s - Worker().now_s
    assert MOST_S <= trained_s < 1.5 * MOST_S
    shown = done.experiment.shown()
    assert shown.is_over
    assert shown.failure == ""
    assert any(one.high - one.low > 2 * PRECISION for one in shown.slopes)


def test_it_ends_with_what_it_has_when_all_rounds_are_run(monkeypatch):
    monkeypatch.setattr(slowing, "MOST_ROUNDS", 5)
    done = conducted({"host": 1.0}, noise=(0.0, 30.0, 1.0, 50.0, 20.0, 3.0, 40.0)).run()
    shown = done.experiment.shown()
    assert shown.is_over
    assert shown.rounds == 5
    assert slopes_of(done)["host"].low is not None


def test_a_part_that_cannot_be_slowed_says_why_and_the_others_have_slopes():
    done = conducted({"host": 1.0}, cannot={"loader": "no DataLoader was seen"}).run()
    found = slopes_of(done)
    assert (found["loader"].slope, found["loader"].why_not) == (None, "no DataLoader was seen")
    assert found["host"].slope == pytest.approx(1.0)


def test_a_part_that_cannot_be_slowed_is_asked_for_once():
    refusals = {"device": "the training is on a CPU"}
    done = conducted({"host": 1.0}, cannot=refusals, noise=(0.0, 9.0, 1.0, 5.0, 2.0)).run()
    assert done.experiment.shown().rounds > FEWEST_ROUNDS
    slowed = [blocks for blocks in done.commands if blocks]
    assert slowed
    assert not any(block.slow.part == "device" for block in slowed[0])


def test_a_training_that_refuses_its_blocks_ends_it_with_the_reason():
    worker = Worker(refuses=lambda _settings: "not here")
    done = Conducted(SlowingTrial(STEP_MS), worker).run()
    shown = done.experiment.shown()
    assert {one.why_not for one in shown.slopes} == {"not here"}
    assert shown.is_over
    assert shown.failure


def test_what_cannot_suffice_is_known_before():
    quick, slow = SlowingTrial(STEP_MS), SlowingTrial(10_000.0)
    for one in (quick, slow):
        one.begin(Worker().start(), 0)
    assert quick.shown().expected_s < MOST_S < slow.shown().expected_s


def test_a_step_that_never_ends_does_not_outlast_the_minute():
    slow = Conducted(SlowingTrial(STEP_MS), Worker())
    slow.tell(host(Worker().now_s, core_wait_pct=0.0))
    slow.tell(host(Worker().now_s + MOST_S, core_wait_pct=0.0))
    assert slow.commands == [()]


def test_an_early_end_keeps_the_slopes_so_far():
    done = conducted({"device": 1.0}, noise=(0.0, 30.0, 10.0, 50.0))
    while done.experiment.shown().rounds < FEWEST_ROUNDS:
        done.turn()
    done.experiment.cancel("ended")
    done.send(())
    done.run()
    assert done.experiment.shown().is_over
    assert slopes_of(done)["device"].low is not None
