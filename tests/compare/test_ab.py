from itertools import cycle
from random import Random

import pytest

from gpudash.compare.ab import INSTRUMENTS, Comparison, Question
from gpudash.compare.experiment import BLOCK_S, MIN_STEPS, RUN_S
from gpudash.compare.lengths import FEWEST_PAIRS
from gpudash.compare.paired_t import block_order
from gpudash.protocol.commands import Change
from gpudash.protocol.readings import HostReading
from tests.having import having
from tests.lives import in_process
from tests.scripted_run import host
from tests.scripted_worker import Conducted, Worker

STOP = ()


def pipelined(pairs=4, **question):
    return Question(lever="pipelined", a="off", b="on", pairs=pairs, **question)


def faster(ratio, *, noise=(1.0,)):
    """Steps of 50 ms under off, shorter by `ratio` under on."""
    wobble = cycle(noise)
    return lambda settings: 50.0 * next(wobble) / (ratio if settings["pipelined"] == "on" else 1.0)


def unsteady(spread=0.5, seed=2):
    """Noise in which 20 pairs do not settle a quarter."""
    random = Random(seed)
    return [random.lognormvariate(0.0, spread) for _ in range(997)]


def conduct(question, **worker):
    return Conducted(Comparison(question), Worker(**worker))


# ── the blocks ─────────────────────────────────────────────────────────────────────────


def test_each_pair_runs_both_values_in_the_order_that_was_drawn():
    blocks = Comparison(pipelined(pairs=20, seed=3)).begin(Worker().start(), 0)
    assert [block.number for block in blocks] == list(range(40))
    values = ["A" if block.changes == {"pipelined": "off"} else "B" for block in blocks]
    assert "".join(values) == "".join(block_order(20, seed=3))
    assert {"AB", "BA"} == set(block_order(20, seed=3))


@pytest.mark.parametrize(("short_runs", "least_s"), [(False, BLOCK_S), (True, RUN_S)])
def test_a_lever_that_needs_a_rebuild_alternates_short_runs(short_runs, least_s):
    blocks = Comparison(pipelined(short_runs=short_runs)).begin(Worker().start(), 0)
    assert {(block.min_steps, block.min_s) for block in blocks} == {(MIN_STEPS, least_s)}


def test_the_instruments_are_compared_by_the_wall_clock():
    question = Question(lever=INSTRUMENTS, a="on", b="off", pairs=8)
    blocks = Comparison(question).begin(Worker().start(), 0)
    assert {block.wall_clock for block in blocks} == {"instrumented", "uninstrumented"}
    assert all(block.changes == {} for block in blocks)
    assert blocks[0].wall_clock == (
        "instrumented" if block_order(8, 0)[0] == "AB" else "uninstrumented"
    )


# ── to the verdict ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("behind", [0, 1, 3, 8])
@pytest.mark.parametrize("seed", [0, 1])
def test_all_pairs_are_measured_and_then_there_is_a_verdict(seed, behind):
    steps = faster(1.25, noise=unsteady())
    done = conduct(pipelined(pairs=6, seed=seed), step_ms=steps, behind=behind).run()
    comparison = done.experiment
    assert comparison.found == having(pairs=6, change=pytest.approx(0.25, abs=0.2))
    assert comparison.verdict is not None
    assert comparison.failure is None
    assert done.commands == []  # nothing was left to be stopped
    assert done.worker.began == list(range(12))
    assert done.worker.settings["pipelined"] == "off"


def test_the_estimate_is_shown_from_the_first_pair_on_and_an_interval_from_the_fifth():
    question = pipelined(pairs=6, precision=0.001)
    done = conduct(question, step_ms=faster(1.25, noise=(1.0, 1.02, 0.98, 1.01)))
    shown = done.experiment.shown()
    assert shown == having(
        lever="pipelined",
        a="off",
        b="on",
        pairs=0,
        planned_pairs=6,
        change=None,
        low=None,
        high=None,
    )
    assert (shown.of("steps_per_s"), shown.of("host_ms")) == ((None, None), (None, None))
    while done.experiment.shown().pairs < 1:
        done.turn()
    shown = done.experiment.shown()
    assert shown.change == pytest.approx(0.25, abs=0.05)
    assert (shown.low, shown.history) == (None, ())  # one pair has no interval
    shown = done.run().experiment.shown()
    assert shown.pairs == 6
    assert shown.of("steps_per_s") == (pytest.approx(20.0, rel=0.03), pytest.approx(25.0, rel=0.03))
    assert shown.of("host_ms") == (2.0, 2.0)
    assert len(shown.history) == 2  # of five pairs and of six
    assert all(low <= change <= high for low, change, high in shown.history)
    assert shown.history[-1] == (shown.low, shown.change, shown.high)
    assert shown.verdict == done.experiment.verdict


def test_blocks_of_unequal_work_are_compared_by_the_sample():
    question = Question(lever="batch_size", a="8", b="16", pairs=4)
    done = conduct(question, step_ms=lambda s: 50.0 if s["batch_size"] == "8" else 80.0).run()
    assert done.experiment.found.change == pytest.approx(100 / 80 - 1)


def test_batch_sizes_cannot_be_compared_if_samples_are_unknown():
    conducted = conduct(Question(lever="batch_size", a="8", b="16", pairs=4))
    conducted.worker.samples = lambda _settings: None
    conducted.run()
    assert conducted.experiment == having(
        verdict=None, found=None, failure="it is not known how many samples a step has"
    )


def test_it_ends_once_a_difference_above_one_percent_is_ruled_out():
    question = Question(lever="pipelined", a="on", b="on", pairs=40)
    done = conduct(question, step_ms=faster(1.0, noise=(1.0, 1.004, 0.997))).run()
    assert done.experiment.verdict.startswith("no difference above 1 % for pipelined=on: ")
    assert done.experiment.found.pairs < 40
    assert done.commands == [STOP]


def test_the_same_setting_twice_in_a_row_is_the_check_on_the_procedure():
    done = conduct(pipelined(pairs=20), step_ms=faster(1.25, noise=unsteady())).run()
    assert done.experiment.check is not None
    assert done.experiment.verdict.endswith("20 pairs, control passed")
    quick = conduct(pipelined(pairs=20), step_ms=faster(1.25)).run().experiment
    assert quick.check is None
    assert quick.verdict.endswith("5 pairs, no control yet")


@pytest.mark.parametrize("delay", [0, 1, 40])
def test_it_ends_as_soon_as_it_is_sure_and_precise_and_says_so_once(delay):
    question = pipelined(pairs=60)
    done = Conducted(Comparison(question), Worker(step_ms=faster(1.25)), delay=delay).run()
    comparison = done.experiment
    assert comparison.found.pairs == FEWEST_PAIRS
    assert comparison.shown().is_sure
    assert f"{FEWEST_PAIRS} pairs" in comparison.verdict
    assert done.commands == [STOP]
    assert len(done.worker.began) < 60
    assert done.worker.settings["pipelined"] == "off"  # done means: back home


def conduct_beside(*readings):
    """A comparison, with readings of the core wait in its first turns."""
    done = conduct(pipelined(), step_ms=faster(1.25))
    for core_wait_pct in readings:
        done.turn()
        values = {} if core_wait_pct is None else {"core_wait_pct": core_wait_pct}
        done.tell(HostReading(at_s=done.worker.now_s, values=values))
    return done.run().experiment


WARNING = "; cores were short: the training waited for one {} % of the time"


@pytest.mark.parametrize(
    ("readings", "mean", "warning"),
    [
        ((90.0, None, 30.0, 24.0), 48.0, WARNING.format(48)),
        ((15.0,), 15.0, WARNING.format(15)),
        ((14.9, 14.9), 14.9, ""),
        ((0.0,), 0.0, ""),
        ((None, None), None, ""),
        ((), None, ""),
    ],
)
def test_a_verdict_says_if_the_training_had_to_wait_for_a_core(readings, mean, warning):
    comparison = conduct_beside(*readings)
    assert comparison.verdict == conduct_beside().verdict + warning
    assert comparison.shown().core_wait_pct == (mean and pytest.approx(mean))


def test_while_no_step_ends_readings_do_not_count():
    """Something compiles: the training has a core for that, and the GPU idles."""
    done = conduct(pipelined(), step_ms=faster(1.25))
    for core_wait_pct in (40.0, 90.0, 90.0):
        done.tell(host(done.worker.now_s, core_wait_pct=core_wait_pct))
    assert done.run().experiment.shown().core_wait_pct == 40.0


def test_load_that_comes_after_the_verdict_does_not_touch_it():
    done = Conducted(
        Comparison(pipelined(pairs=60, precision=0.01)), Worker(step_ms=faster(1.25)), delay=100
    )
    done.tell(host(done.worker.now_s, core_wait_pct=10.0))
    while done.experiment.verdict is None:
        done.turn()
    assert not done.experiment.done
    done.tell(host(done.worker.now_s, core_wait_pct=90.0))
    assert done.experiment.shown().core_wait_pct == 10.0


def test_the_rates_differ_by_the_change_however_unsteady_the_machine():
    noise = (*[1.0] * 9, *[3.0] * 5, *[1.4] * 7)
    shown = conduct(pipelined(pairs=6), step_ms=faster(1.25, noise=noise)).run().experiment.shown()
    for a, b in (shown.of("steps_per_s"), shown.of("samples_per_s")):
        assert b / a == pytest.approx(1 + shown.change)


@pytest.mark.parametrize("share", [0.99, 0.5, 0.0])
def test_the_hosts_part_of_a_step_stays_what_it_is_however_unsteady_the_machine(share):
    noise = (*[1.0] * 9, *[3.0] * 5, *[1.4] * 7)
    done = conduct(pipelined(pairs=6), step_ms=faster(1.25, noise=noise))
    done.worker.host_ms = lambda step_ms: share * step_ms
    shown = done.run().experiment.shown()
    for host_ms, rate in zip(shown.of("host_ms"), shown.of("steps_per_s"), strict=True):
        assert host_ms == pytest.approx(share * 1e3 / rate)


# ── interruptions ───────────────────────────────────────────────────────────────


def test_an_impossible_value_ends_it_with_the_reason():
    done = conduct(
        pipelined(), refuses=lambda s: "no streams" if s["pipelined"] == "on" else None
    ).run()
    assert (done.experiment.failure, done.experiment.refused) == ("no streams", True)
    assert done.experiment.verdict is None
    assert done.commands == [STOP]
    assert done.worker.settings["pipelined"] == "off"


@pytest.mark.parametrize("seed", range(4))  # the value that is too big comes first, or second
def test_a_value_that_runs_out_of_memory_ends_it_with_the_reason(seed):
    question = Question(lever="batch_size", a="8", b="4096", pairs=4, seed=seed)
    done = conduct(question, too_big=lambda s: s["batch_size"] == "4096").run()
    assert "out of memory" in done.experiment.failure
    assert done.experiment.verdict is None
    assert done.commands == [STOP]
    assert done.worker.settings["batch_size"] == "8"
    assert not done.worker.blocks.running  # it did not end while blocks were still run


@pytest.mark.parametrize(
    ("pairs", "short_runs", "is_enough"),
    [(4, False, False), (5, False, True), (2, True, False), (3, True, True)],
)
def test_ended_by_the_user_it_keeps_what_was_measured_if_that_has_an_interval(
    pairs, short_runs, is_enough
):
    question = pipelined(pairs=40, precision=0.0001, short_runs=short_runs)
    done = conduct(question, step_ms=faster(1.25, noise=unsteady(0.01)))
    while done.experiment.shown().pairs < pairs:
        done.turn()
    done.experiment.cancel("ended")
    shown = done.run().experiment.shown()
    assert shown.pairs == pairs  # what the training had still under way does not count
    if not is_enough:
        assert shown == having(
            verdict=None, failure=f"ended after {pairs} pairs, too few for a verdict"
        )
    else:
        assert shown.failure is None
        assert done.experiment.cut_short
        assert shown.verdict.startswith("pipelined=on is 2")
        assert shown.verdict.endswith(f"{pairs} pairs, no control yet")
        assert shown.proven == (shown.low > 0)  # whoever ended it: the interval allows that
    assert done.commands == [STOP]


def test_of_a_fixed_number_of_pairs_the_usual_interval_comes_with_the_last():
    done = conduct(pipelined(pairs=16, fixed=True), step_ms=faster(1.25, noise=unsteady(0.1)))
    while done.experiment.shown().pairs < 4:
        done.turn()
    assert done.experiment.shown().low is None
    assert done.run().experiment.found.pairs == 16
    *_, before, (low, _, high) = done.experiment.shown().history
    assert high - low < before[2] - before[0]  # it need not hold at every look


def test_it_goes_on_with_the_pairs_that_it_has():
    worker = Worker(step_ms=faster(1.25))
    first = Conducted(Comparison(pipelined(pairs=40)), worker).run().experiment
    state = worker.start()
    longer = first.with_more(pipelined(pairs=16), state)
    assert longer.shown().pairs == 5
    second = Conducted(longer, Worker(step_ms=faster(1.25)), run=1).run().experiment
    assert second.found.pairs == 16  # not only until the change is known
    assert second.verdict.endswith("16 pairs, control passed")
    assert (first.shown().goes_on, second.shown().goes_on) == (False, True)


@pytest.mark.parametrize("asked", [{"pairs": 16, "fixed": True}, {"pairs": 3}])
def test_after_a_fixed_number_of_pairs_the_interval_that_goes_on_holds_at_every_look(asked):
    worker = Worker(step_ms=faster(1.25, noise=unsteady(0.1)))
    first = Conducted(Comparison(pipelined(**asked)), worker).run().experiment
    longer = first.with_more(pipelined(**{**asked, "pairs": 20}), worker.start())
    shown = Conducted(longer, worker, run=1).run().experiment.shown()
    usual = conduct(pipelined(pairs=20, fixed=True), step_ms=faster(1.25, noise=unsteady(0.1)))
    low, _, high = usual.run().experiment.shown().history[-1]
    assert shown.pairs == 20
    assert shown.high - shown.low > 1.3 * (high - low)


def test_it_begins_anew_where_another_question_or_another_start_came_between():
    worker = Worker(step_ms=faster(1.25))
    first = Conducted(Comparison(pipelined(pairs=40)), worker).run().experiment
    other = Question(lever="pipelined", a="on", b="off", pairs=16)
    assert first.with_more(other, worker.start()).found is None
    restarted = in_process(worker.start(), pid=43)
    assert first.with_more(pipelined(pairs=16), restarted).found is None


def test_another_change_ends_it():
    done = conduct(pipelined())
    done.turn(30)
    assert done.experiment.found is not None
    done.worker.obey(Change(id=9, settings={"num_workers": "4"}))
    done.run()
    failure = "another change ended it after 1 pair, too few for a verdict"
    assert done.experiment == having(failure=failure, verdict=None)
    assert done.experiment.shown().failure == failure
    assert done.commands == []


def test_at_the_end_of_the_training_what_was_measured_is_its_verdict():
    """Its interval holds at every look, so also at this one."""
    done = conduct(pipelined(pairs=20), step_ms=faster(1.25, noise=unsteady()))
    while done.experiment.shown().pairs < 8:
        done.turn()
    assert not done.experiment.is_over
    done.worker.finish()
    for record in done.worker.take():
        done.tell(record)
    assert done.experiment.done
    assert done.experiment.cut_short
    assert "8 pairs" in done.experiment.verdict
