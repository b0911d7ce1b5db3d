"""One record of several equal steps counts as much as a record for each step."""

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudash.compare.blocks import BlockLog
from gpudash.protocol.commands import Block
from gpudash.protocol.training import State
from gpudash.ranks.recent import RecentSteps
from gpudash.statistics import percentiles, without
from gpudash.views.settings_history import SettingsHistory
from gpudash.views.time_breakdown import TimeAccount
from gpudash.views.timeseries import Ticks
from gpudash.window import Pace, Window, stretches
from tests.scripted_run import BEGAN_S, Trainer, gpu, measured

LENGTHS = st.lists(st.tuples(st.integers(1, 400), st.integers(1, 12)), min_size=1, max_size=8)


def begun():
    view = SettingsHistory()
    view.start(0, "encdec", {})
    return view


def trained(lengths, cpu_ms=None):
    """Return one run twice: step by step, and with one record for each length."""
    run, each, together = Trainer(), [], []
    for step_ms, count in lengths:
        alike = run.steps(count, step_ms)
        warm = sum(step.warm for one in alike for step in one.steps)
        each += [with_cpu(one, cpu_ms) for one in alike]
        last = each[-1]
        one = msgspec.structs.replace(last.steps[0], count=count, samples=8 * count, warm=warm)
        together.append(msgspec.structs.replace(last, steps=(one,)))
    return [Trainer().start(), *each], [Trainer().start(), *together]


def with_cpu(progress, cpu_ms):
    steps = tuple(measured(step, cpu_ms=cpu_ms) for step in progress.steps)
    return msgspec.structs.replace(progress, steps=steps)


def steps_of(items):
    return [step for item in items if not isinstance(item, State) for step in item.steps]


def numbers(values):
    """Return the values, NaN for what was not measured."""
    return [math.nan if value is None else value for value in values]


def ticks(items):
    view = Ticks(BEGAN_S)
    view.begin(BEGAN_S - 1)
    for step in steps_of(items):
        view.step(step)
        view.cover(step.finished_s)
    series = view.series()
    return [value for values in (series.at_s, *series.values.values()) for value in values]


def having(view, items):
    for step in steps_of(items):
        view.add(step)
    return view


def whole_run(items):
    return [having(Pace(), items).per_s("steps")]


def account(items):
    view = TimeAccount()
    for item in items:
        view.fold(item)
    return msgspec.structs.astuple(view.account())


def history(items):
    view = begun()
    for step in steps_of(items):
        view.step(step)
    (row,) = view.results(live=True)
    return [
        row.steps,
        row.steps_per_s,
        row.samples_per_s,
        row.step_ms_p50,
        *row.values.values(),
    ]


def block(items):
    run = Trainer()
    begun = msgspec.structs.replace(run.change(pipelined="on"), segment=0, block=0)
    log = BlockLog([Block(number=0, changes={}, min_steps=1, min_s=0.0)])
    last = steps_of(items)[-1].step
    left = msgspec.structs.replace(run.change(), after_step=last)
    outcomes = [one for item in [begun, *items[1:-1], left, items[-1]] for one in log.fold(item)]
    return [
        value for one in outcomes for value in (one.steps, one.samples, one.busy_s, one.host_ms)
    ]


@settings(deadline=None)  # a busy machine is no failure
@pytest.mark.parametrize("view", [ticks, whole_run, account, history, block])
@given(LENGTHS, st.sampled_from([None, 30.0]))
def test_every_view_is_the_same_for_equal_steps_and_their_one_record(view, lengths, cpu_ms):
    each, together = trained(lengths, cpu_ms)
    expected = pytest.approx(numbers(view(each)), rel=1e-6, abs=1e-9, nan_ok=True)
    assert numbers(view(together)) == expected


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 4)), min_size=1, max_size=8))
def test_the_current_rate_is_the_same_too(lengths):
    each, together = trained(lengths)
    rate, expected = (having(RecentSteps(), items).rate(0.0) for items in (together, each))
    assert rate == pytest.approx(expected)


@given(LENGTHS, st.floats(0, 100))
def test_a_percentile_of_counted_values_is_that_of_all_of_them(lengths, q):
    every = [(value, 1) for value, count in lengths for _ in range(count)]
    assert percentiles(lengths, (q,)) == percentiles(every, (q,))


@given(LENGTHS)
def test_a_record_for_a_stretch_of_different_steps_has_their_sums_and_means(lengths):
    steps = steps_of(trained(lengths)[0])
    records, expected = Window([record for record, _ in stretches(steps)]), Window(steps)
    assert (records.steps, records.samples) == (expected.steps, expected.samples)
    assert {"": records.busy_s, **records.values()} == pytest.approx(
        {"": expected.busy_s, **expected.values()}
    )


def test_warm_up_is_removed_from_a_record_of_equal_steps():
    step = msgspec.structs.replace(steps_of(Trainer().steps(1))[0], count=5, samples=40)
    assert without(step, 0) is step
    assert (without(step, 2).count, without(step, 2).samples) == (3, 24)
    assert without(step, 5) is None


def test_readings_during_alike_steps_count():
    step = msgspec.structs.replace(
        steps_of(Trainer().steps(40))[-1], count=40, samples=320, warm=40
    )
    view = begun()
    view.sample(gpu(step.finished_s - 0.1, gpu_util_pct=50.0))
    view.step(step)
    assert view.results(live=True)[0].values["gpu_util_pct"] == 50.0
