"""A proof by slowing: its blocks, its slopes, and when it ends."""

from itertools import cycle
from random import Random

import pytest

from gpudash.compare import slowing
from gpudash.compare.slowing import FEWEST_ROUNDS, MOST_S, PARTS, PRECISION, SlowingTrial
from tests.scripted_run import host
from tests.scripted_worker import Conducted, Worker

STEP_MS = 50.0
HOST_ALONE = {"loader": "no DataLoader was seen", "device": "the training is on a CPU"}
"""Of what cannot be slowed no block is run."""


def conducted(slopes, *, noise=(0.0,), cannot=None):
    """A training whose steps grow by these shares of a part's delay."""
    wobble = cycle(noise)
    worker = Worker(lambda _settings: STEP_MS + next(wobble))
    worker.grows_ms = lambda slow: slopes.get(slow.part, 0.0) * slow.ms
    worker.cannot_slow = lambda slow: (cannot or {}).get(slow.part)
    return Conducted(SlowingTrial(STEP_MS), worker)


def slopes_of(done):
    return {one.part: one for one in done.experiment.shown().slopes}


def test_each_round_slows_each_part_between_blocks_without_delay():
    blocks = SlowingTrial(STEP_MS).begin(Worker().start(), 0)
    assert [one.number for one in blocks] == list(range(len(blocks)))
    assert {block.slow.ms for block in blocks[::2]} == {0.0}  # all are of one kind
    assert {block.slow.ms for block in blocks[1::2]} == {0.1 * STEP_MS}
    slowed = [block.slow.part for block in blocks[1::2]]
    rounds = [tuple(slowed[at : at + len(PARTS)]) for at in range(0, len(slowed), len(PARTS))]
    assert all(sorted(one) == sorted(PARTS) for one in rounds)
    assert len(set(rounds)) > 1  # what repeats must not favour a part
    assert all(block.changes == {} for block in blocks)


def test_it_expects_to_take_the_fewest_rounds_with_their_warm_up():
    trial = SlowingTrial(400.0)
    trial.begin(Worker().start(), 0)
    assert trial.shown().expected_s == pytest.approx(4 * 3 * 2 * 7.5 * 0.4)  # steps of a block
    assert trial.shown().rounds == 0


def test_nothing_periodic_meets_the_same_side_each_time():
    blocks = SlowingTrial(STEP_MS).begin(Worker().start(), 0)
    assert len({block.min_steps for block in blocks}) > 1
    assert len({block.min_s for block in blocks}) > len(blocks) / 2


def test_a_part_on_the_critical_path_has_slope_one_and_a_hidden_one_zero():
    done = conducted({"loader": 1.0, "host": 0.0}).run()
    found = slopes_of(done)
    assert found["loader"].slope == pytest.approx(1.0)
    assert found["host"].slope == pytest.approx(0.0)
    assert found["loader"].low <= 1.0 <= found["loader"].high
    assert done.experiment.shown().rounds == FEWEST_ROUNDS
    assert done.experiment.shown().is_over
    assert done.worker.settings == Worker().settings


def test_a_drift_is_no_growth():
    done = conducted({"host": 1.0}, noise=[0.1 * at for at in range(1000)]).run()
    found = slopes_of(done)
    assert found["host"].slope == pytest.approx(1.0, abs=0.05)
    assert found["device"].slope == pytest.approx(0.0, abs=0.05)


def test_a_block_that_something_held_up_does_not_count(monkeypatch):
    monkeypatch.setattr(slowing, "MOST_S", 10 * MOST_S)
    done = conducted({"host": 1.0}, noise=[*[0.0] * 120, 5_000.0, *[0.0] * 5_000]).run()
    assert slopes_of(done)["host"].slope == pytest.approx(1.0, abs=0.05)
    assert all(one.high - one.low <= 2 * PRECISION for one in slopes_of(done).values())


def test_it_goes_on_until_each_slope_is_known_well_enough():
    random = Random(1)
    noise = [random.gauss(10.0, 1.5) for _ in range(1000)]
    done = conducted({"host": 1.0}, noise=noise, cannot=HOST_ALONE).run()
    assert done.experiment.shown().rounds > FEWEST_ROUNDS
    found = slopes_of(done)["host"]
    assert found.high - found.low <= 2 * PRECISION


def test_a_worker_gets_further_blocks_before_it_has_run_out(monkeypatch):
    monkeypatch.setattr(slowing, "SENT", 8)
    noise = (0.0, 300.0, 10.0, 500.0, 200.0, 30.0, 400.0)
    done = conducted({}, noise=noise, cannot=HOST_ALONE).run()
    assert len(done.worker.began) > 8
    assert all(len(blocks) <= 8 for blocks in done.commands)
    assert done.worker.began == sorted(set(done.worker.began))


def test_it_ends_after_a_minute_with_what_it_has():
    noise = (0.0, 300.0, 10.0, 500.0, 200.0, 30.0, 400.0)
    done = conducted({}, noise=noise, cannot=HOST_ALONE).run()
    assert MOST_S <= done.worker.now_s - Worker().now_s < 1.5 * MOST_S
    shown = done.experiment.shown()
    assert shown.is_over
    assert shown.failure == ""
    found = slopes_of(done)["host"]
    assert found.high - found.low > 2 * PRECISION


def test_it_ends_with_what_it_has_when_all_rounds_are_run(monkeypatch):
    monkeypatch.setattr(slowing, "MOST_ROUNDS", 6)
    noise = (0.0, 30.0, 1.0, 50.0, 20.0, 3.0, 40.0)
    done = conducted({"host": 1.0}, noise=noise, cannot=HOST_ALONE).run()
    shown = done.experiment.shown()
    assert shown.is_over
    assert shown.rounds == 5  # the last one has no block after it
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
    shown = Conducted(SlowingTrial(STEP_MS), worker).run().experiment.shown()
    assert {one.why_not for one in shown.slopes} == {"not here"}
    assert shown.is_over
    assert shown.failure


def test_a_step_that_never_ends_does_not_outlast_the_minute():
    slow = Conducted(SlowingTrial(STEP_MS), Worker())
    slow.tell(host(Worker().now_s, core_wait_pct=0.0))
    slow.tell(host(Worker().now_s + MOST_S, core_wait_pct=0.0))
    assert slow.commands == [()]


def test_an_early_end_keeps_the_slopes_so_far():
    done = conducted({"host": 1.0}, noise=(0.0, 30.0, 10.0, 50.0), cannot=HOST_ALONE)
    while done.experiment.shown().rounds < FEWEST_ROUNDS:
        done.turn()
    assert not done.experiment.is_over
    done.experiment.cancel("ended")
    done.send(())
    done.run()
    assert done.experiment.shown().is_over
    assert slopes_of(done)["host"].low is not None
