"""An A/B that was asked for energy: longer blocks, joules of a sample, or why there are none."""

from itertools import cycle

import pytest

from gpudash.compare.ab import Comparison, Question
from gpudash.compare.experiment import BLOCK_S
from gpudash.compare.meter import LEAST_S
from tests.having import having
from tests.metered_worker import Metered
from tests.scripted_worker import Conducted, Worker


class MeteredWorker(Metered, Worker):
    """Steps of 50 ms, a little unsteady; a step has 8 samples."""


def pipelined(pairs=6, **about):
    return Question(lever="pipelined", a="off", b="on", pairs=pairs, **about)


def compared(question, power_w=lambda _: 300.0, *, ratio=1.25):
    wobble = cycle((1.0, 1.002, 0.999, 1.001, 0.998))

    def step_ms(settings):
        return 50.0 * next(wobble) / (ratio if settings["pipelined"] == "on" else 1.0)

    worker = MeteredWorker(step_ms, power_w=power_w)
    return Conducted(Comparison(question), worker).run().experiment


def test_only_where_energy_is_asked_for_blocks_are_long_enough_for_it():
    long, short = (Comparison(pipelined(energy=asked)) for asked in (True, False))
    assert {block.min_s for block in short.begin(Worker().start(), 0)} == {BLOCK_S}
    assert all(block.min_s > LEAST_S for block in long.begin(Worker().start(), 0))


def test_joules_of_a_sample_follow_from_power_and_rate():
    shown = compared(pipelined(energy=True)).shown()
    found = shown.energy
    assert found is not None
    assert found == having(
        joules=pytest.approx((300 * 0.050 / 8, 300 * 0.040 / 8), rel=0.005),
        change=pytest.approx(-0.2, abs=0.005),
    )
    assert found.low < found.change < found.high < -0.19
    assert (found.per, found.pairs, shown.gpus) == ("sample", shown.pairs, 1)


def test_without_a_counter_the_verdict_comes_and_says_why_there_are_no_joules():
    comparison = Conducted(Comparison(pipelined(energy=True)), Worker()).run().experiment
    assert comparison.verdict is not None
    assert comparison.shown() == having(
        energy=None, why_no_energy="GPUs that train: 1, energy counters read: 0"
    )


def test_a_driver_reloaded_in_each_block_leaves_no_figure_and_the_verdict_as_it_was():
    reset = cycle((300.0,) * 20 + (-1e6,))
    comparison = compared(pipelined(energy=True), lambda _: next(reset))
    assert comparison.shown().why_no_energy == "the energy counter went backwards"
    assert comparison.verdict.startswith("pipelined=on is 25.00 % faster")
