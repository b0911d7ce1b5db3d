"""Rows tile any run, and each step is in exactly one row."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.protocol.training import Progress
from gpudash.recording.intervals import GRACE_S, Intervals
from tests.scripted_run import BEGAN_S, Trainer, gpu, host

ACTIONS = st.one_of(
    st.tuples(st.just("train"), st.integers(1, 12), st.floats(1.0, 900.0)),
    st.tuples(st.just("pause"), st.floats(0.0, 3.0)),
    st.tuples(st.just("change"), st.sampled_from(["8", "16", "32"]), st.floats(0.0, 2.0)),
    st.tuples(st.just("restart"), st.floats(1e-3, 2.0)),  # no process is ready when another was
)
SCRIPTS = st.lists(ACTIONS, max_size=12)
INTERVALS = st.sampled_from([0.1, 0.3, 0.5, 2.0])


def played(script):
    run = Trainer(BEGAN_S + 0.7)
    items = [run.start()]
    for action, *values in script:
        if action == "train":
            items += run.steps(*values)
        elif action == "pause":
            items += [run.pause(), run.wait(values[0]), run.resume()]
        elif action == "change":
            run.now_s += values[1]  # the worker is silent while it builds a loader
            items.append(run.change(batch_size=values[0]))
        else:
            run.now_s = round(run.now_s + values[0], 6)
            items.append(run.start())
    return items, run.now_s


def folded(items, end_s, interval_s, began_s=BEGAN_S):
    intervals = Intervals(began_s, interval_s)
    rows = [row for item in items for row in intervals.fold(item)]
    return [*rows, *intervals.close(end_s)]


@given(SCRIPTS, INTERVALS)
def test_rows_follow_each_other_without_a_gap_up_to_the_end(script, interval_s):
    items, end_s = played(script)
    rows = folded(items, end_s, interval_s)
    assert rows[0].began_s == BEGAN_S
    assert rows[-1].ended_s == end_s
    assert all(before.ended_s == after.began_s for before, after in pairwise(rows))
    assert all(0 < row.ended_s - row.began_s <= interval_s * 1.001 for row in rows)


@given(SCRIPTS, INTERVALS)
def test_every_finished_step_is_in_exactly_one_row(script, interval_s):
    items, end_s = played(script)
    rows = folded(items, end_s, interval_s)
    trained = sum(len(item.steps) for item in items if isinstance(item, Progress))
    assert sum(row.steps for row in rows) == trained
    assert sum(row.samples for row in rows) == 8 * trained


@given(SCRIPTS, INTERVALS)
def test_the_seconds_trained_are_all_but_those_paused_switching_or_starting(script, interval_s):
    items, end_s = played(script)
    steps = [step for item in items if isinstance(item, Progress) for step in item.steps]
    taken = [(step.finished_s - step.step_ms / 1e3, step.finished_s) for step in steps]
    for row in folded(items, end_s, interval_s):
        of_steps = sum(
            max(min(to_s, row.ended_s) - max(from_s, row.began_s), 0.0) for from_s, to_s in taken
        )
        # to the precision of a step's time, at both of the row's ends
        assert row.train_s == pytest.approx(of_steps, abs=2e-5)


MOMENTS = st.floats(BEGAN_S - 1, BEGAN_S + 9)
NUMBERS = st.integers(0, 9)


@st.composite
def any_event(draw):
    run = Trainer(draw(MOMENTS))
    run.number, run.segment = draw(NUMBERS), draw(NUMBERS)
    kinds = [run.start, run.pause, run.resume, run.change, run.progress, run.step, run.finish]
    return draw(st.sampled_from(kinds))()


@given(st.lists(any_event()), INTERVALS)
def test_whatever_comes_in_no_row_trained_longer_than_it_is(items, interval_s):
    rows = folded(items, BEGAN_S + 9, interval_s)
    assert rows[-1].ended_s >= BEGAN_S + 9
    assert all(0 <= row.train_s <= row.ended_s - row.began_s + 1e-9 for row in rows)


@given(SCRIPTS, INTERVALS)
def test_no_row_mixes_settings(script, interval_s):
    items, end_s = played(script)
    rows = folded(items, end_s, interval_s)
    in_force = {row.segment: row.settings for row in rows}
    assert all(row.settings == in_force[row.segment] for row in rows)
    assert [row.segment for row in rows] == sorted(row.segment for row in rows)
    # and each setting has as many steps as were trained under it
    trained = {}
    for item in items:
        for step in item.steps if isinstance(item, Progress) else ():
            trained[step.segment] = trained.get(step.segment, 0) + 1
    counted = {}
    for row in rows:
        counted[row.segment] = counted.get(row.segment, 0) + row.steps
    assert {segment: count for segment, count in counted.items() if count} == trained


@given(SCRIPTS, st.lists(st.floats(0.0, GRACE_S - 0.3), min_size=1, max_size=20))
def test_samples_may_come_before_or_after_the_steps_of_their_moment(script, delays):
    # a change with no step before it shows from the first row that has not left yet
    items, end_s = played([one for action in script for one in (("train", 1, 50.0), action)])
    moments, now_s = [], BEGAN_S
    for item in items:  # when each of the worker's records is sent
        now_s = max(now_s, getattr(item, "at_s", now_s), getattr(item, "until_s", now_s))
        moments.append((now_s, item))
    times = [BEGAN_S + 0.1 + tick / 5 for tick in range(int((end_s - BEGAN_S) * 5))]
    samples = [
        (at_s, one)
        for at_s in times
        for one in (gpu(at_s, gpu_util_pct=at_s % 7, energy_j=at_s * 100.0), host(at_s, at_s % 5))
    ]
    late_s = (at_s + delays[index // 2 % len(delays)] for index, (at_s, _) in enumerate(samples))
    in_turn_s = accumulate(late_s, max)  # one thread sends them all
    late = [(at_s, one) for at_s, (_, one) in zip(in_turn_s, samples, strict=True)]
    arrivals = [in_order(moments + samples), in_order(moments + late)]
    on_time, delayed = (folded(items, end_s, 0.5) for items in arrivals)
    assert on_time == delayed


def in_order(moments):
    return [item for _, item in sorted(moments, key=lambda moment: moment[0])]
