import msgspec
import pytest
from msgspec.structs import replace

from gpudash.protocol.session import Notice
from gpudash.protocol.training import Progress, Untimed
from gpudash.recording.intervals import GRACE_S, Intervals
from gpudash.recording.rank_steps import SWITCH_S
from tests.lives import failed, finished, paused
from tests.scripted_run import BEGAN_S, Trainer, gpu, host, measured, step


@pytest.fixture
def run():
    return Trainer()


def fold(items, *, close_s=None, interval_s=0.5, began_s=BEGAN_S):
    intervals = Intervals(began_s, interval_s)
    rows = [row for item in items for row in intervals.fold(item)]
    return rows if close_s is None else [*rows, *intervals.close(close_s)]


@pytest.mark.parametrize("sample", [gpu, host])
def test_a_row_leaves_with_the_first_sample_from_after_its_end(sample, run):
    intervals = Intervals(BEGAN_S, 0.1)
    items = [run.start(), *run.steps(2), run.wait(0.05), sample(BEGAN_S + 0.1 - 0.01)]
    assert [intervals.fold(item) for item in items] == [()] * 5
    assert len(intervals.fold(sample(BEGAN_S + 0.1 + 0.01))) == 1


@pytest.mark.parametrize("end", [finished, failed])
def test_time_after_the_training_does_not_count_as_training(end, run):
    trained = [run.start(), *run.steps(20)]
    ended = run.say(end(run.now_s + 60.0, trained_until_s=run.now_s + 0.1))
    rows = fold([*trained, ended], close_s=ended.at_s)
    assert sum(row.train_s for row in rows) == pytest.approx(1.1)
    assert rows[-1].ended_s == ended.at_s


def test_a_row_with_samples_still_waits_for_its_steps(run):
    intervals = Intervals(BEGAN_S, 0.1)
    intervals.fold(run.start())
    assert intervals.fold(host(BEGAN_S + 0.25)) == ()
    assert [row.steps for item in run.steps(4) for row in intervals.fold(item)] == [2, 2]


def test_a_row_waits_for_the_energy_counter_to_be_read_after_its_end(run):
    intervals = Intervals(BEGAN_S, 0.1)
    items = [run.start(), gpu(BEGAN_S, energy_j=0.0), *run.steps(20), host(run.now_s)]
    assert [row for item in items for row in intervals.fold(item)] == []
    rows = intervals.fold(gpu(run.now_s + 0.1, energy_j=330.0))
    assert [row.gpus[0].values.get("energy_j") for row in rows] == pytest.approx([30.0] * 10)


def test_a_row_waits_only_so_long_for_a_sample(run):
    intervals = Intervals(BEGAN_S)
    intervals.fold(run.start())
    run.now_s = BEGAN_S + 0.5 + GRACE_S - 0.01
    assert intervals.fold(run.progress()) == ()
    run.now_s += 0.02
    assert len(intervals.fold(run.progress())) == 1


def test_before_a_training_starts_a_row_has_no_training():
    (row,) = fold([host(BEGAN_S + 0.1), Notice(text="hello")], close_s=BEGAN_S + 0.5)
    assert (row.segment, row.workload, row.settings, row.train_s) == (0, "", {}, 0.0)


def untimed(number, finished_s, count=1, samples=None, segment=0):
    return Untimed(
        step=number, segment=segment, finished_s=finished_s, count=count, samples=samples
    )


def test_steps_that_were_only_counted_are_steps_of_their_row(run):
    """The first one of a script, and those of a profile."""
    start = run.start()
    first = untimed(1, BEGAN_S + 0.05, samples=8)
    traced = [untimed(number, BEGAN_S + 0.3 * number, samples=8) for number in (3, 4, 5)]
    timed = [step(2, BEGAN_S + 0.4, 100.0), step(6, BEGAN_S + 1.9, 100.0)]
    run.now_s = BEGAN_S + 2
    report = replace(run.progress(*timed), untimed=(first, *traced))
    rows = fold([start, report], close_s=BEGAN_S + 2)
    about = ("step", "steps", "samples", "steps_per_s")
    assert [[getattr(row, name) for name in about] for row in rows] == [
        [2, 2, 16, 4],
        [3, 1, 8, 2],
        [5, 2, 16, 4],
        [6, 1, 8, 2],
    ]
    untimed_and_p50 = [(row.ranks[0].untimed, row.values.get("step_ms_p50")) for row in rows]
    assert untimed_and_p50 == [(1, 100), (1, None), (2, None), (0, 100)]


def test_a_row_of_nothing_but_a_step_of_unknown_samples_has_none(run):
    start = run.start()
    first = untimed(1, BEGAN_S + 0.3)
    run.now_s = BEGAN_S + 1
    report = replace(run.progress(step(2, BEGAN_S + 0.9, 100.0)), untimed=(first,))
    rows = fold([start, report], close_s=BEGAN_S + 1)
    assert [(row.samples, row.ranks[0].tokens) for row in rows] == [(None, None), (8, None)]


def test_a_pause_after_a_step_that_was_only_counted_begins_then(run):
    items = [run.start(), *run.steps(4)]
    run.number += 1
    counted = replace(run.progress(), untimed=(untimed(5, run.now_s),))
    items += [counted, run.pause(), run.wait(1.0)]
    rows = fold(items, close_s=run.now_s)
    assert [row.steps for row in rows] == [5, 0, 0]
    assert [round(row.train_s, 3) for row in rows] == [0.2, 0.0, 0.0]


def test_a_pause_begins_when_the_device_has_finished_the_last_step_before_it(run):
    items = [run.start(), *run.steps(2, 1100.0)]
    pause = run.say(paused(BEGAN_S + 0.1, after_step=2))  # the host runs ahead of the device
    silent = [Progress(until_s=BEGAN_S + at_s, steps=(), total_steps=0, total_samples=0)
              for at_s in (0.2, 0.8)]  # fmt: skip
    rows = fold(
        [items[0], pause, *silent, *items[1:], run.wait(0.8), run.resume(), *run.steps(1)],
        close_s=run.now_s,
    )
    assert sum(row.train_s for row in rows) == pytest.approx(2 * 1.1 + 0.05)


def test_a_change_before_the_first_step_is_a_switch_too(run):
    rows = fold(
        [run.start(), *run.silent(0.4), run.change(batch_size="16"), *run.steps(2)],
        close_s=run.now_s,
    )
    assert [(row.segment, row.steps, row.train_s) for row in rows] == [
        (1, 0, 0), (1, 2, pytest.approx(0.1)),
    ]  # fmt: skip


def test_a_switch_is_in_no_row_with_steps(run):
    rows = fold(
        [
            run.start(),
            *run.steps(24),  # for 1.2 s
            *run.silent(0.26),
            run.change(batch_size="16"),
            *run.steps(25, 20.0),
        ],
        close_s=run.now_s,
    )
    assert [(row.segment, row.steps) for row in rows] == [
        (0, 10), (0, 10), (0, 4), (1, 0), (1, 2), (1, 23),
    ]  # fmt: skip
    rates = [row.steps_per_s for row in rows]
    assert rates[3] is None
    assert [*rates[:3], *rates[4:]] == pytest.approx([20.0] * 3 + [50.0] * 2)
    assert rows[3].ended_s - rows[3].began_s == pytest.approx(0.26)


def test_a_long_switch_has_several_rows_and_the_device_is_seen_to_be_idle_in_it(run):
    items = [
        run.start(),
        *run.steps(20),
        *run.silent(2.0),
        run.change(data="loader"),
        *run.steps(40),
    ]
    moments = [tick / 5 for tick in range(1, 18)]
    items += [gpu(BEGAN_S + at_s, gpu_util_pct=0.0 if at_s >= 2 else 90.0) for at_s in moments]
    rows = fold(in_order(items), close_s=run.now_s)[2:]
    assert [row.steps for row in rows] == [0, 0, 0, 0, 10, 10, 10, 10]
    assert [row.gpus[0].values.get("gpu_util_pct") for row in rows[:5]] == [
        None,
        0.0,
        0.0,
        0.0,
        None,
    ]


def test_a_very_short_switch_has_no_row(run):
    rows = fold(
        [
            run.start(),
            *run.steps(14),
            *run.silent(0.9 * SWITCH_S),
            run.change(pipelined="on"),
            *run.steps(12),
        ],
        close_s=run.now_s,
    )
    assert [row.segment for row in rows] == [0, 0, 1, 1]
    assert all(row.steps for row in rows)


def test_a_change_announced_ahead_of_the_device_cuts_where_its_steps_begin():
    run = Trainer()
    first = run.steps(14)
    changed = run.change(pipelined="on")
    rows = fold([run.start(), *first[:10], changed], close_s=None)
    assert rows == []
    run = Trainer()
    items = [run.start(), *first[:10], changed, *first[10:]]
    run.now_s, run.number, run.segment = BEGAN_S + 0.7, 14, 1
    rows = fold([*items, *run.steps(6)], close_s=run.now_s)
    assert [(row.segment, row.steps) for row in rows] == [(0, 10), (0, 4), (1, 6)]


def test_settings_that_no_step_was_trained_under_get_no_row(run):
    items = [run.start(), *run.steps(5), run.change(batch_size="16"), run.change(batch_size="32")]
    rows = fold([*items, *run.steps(5)], close_s=run.now_s)
    assert [row.segment for row in rows] == [0, 2]


def test_close_ends_with_a_row_as_long_as_what_is_left_and_never_an_empty_one(run):
    items = [run.start(), *run.steps(11)]
    assert [row.steps for row in fold(items, close_s=run.now_s)] == [10, 1]
    assert [row.steps for row in fold(items[:-1], close_s=BEGAN_S + 0.5)] == [10]
    intervals = Intervals(BEGAN_S)
    assert [*intervals.close(BEGAN_S)] == []
    assert [*intervals.close(BEGAN_S + 9.0)] == []


def test_a_gpu_is_in_the_row_that_ends_when_it_is_first_seen(run):
    rows = fold(
        [run.start(), *run.steps(10), gpu(BEGAN_S + 0.5), *run.steps(10)], close_s=run.now_s
    )
    assert [one.uuid for one in rows[0].gpus] == ["GPU-1111"]


def test_a_change_that_nobody_announced_is_a_switch_until_its_first_step_begins(run):
    items = [run.start(), *run.steps(10)]
    run.segment, run.now_s = 1, run.now_s + 0.4
    rows = fold([*items, *run.steps(2)], close_s=run.now_s)
    assert [(row.segment, row.steps) for row in rows] == [(0, 10), (1, 0), (1, 2)]
    assert [row.ended_s - BEGAN_S for row in rows] == pytest.approx([0.5, 0.9, 1.0])


def test_another_worker_begins_without_steps_and_without_a_loss(run):
    rows = fold(
        [run.start(), *run.steps(10), *run.silent(0.5), run.start(), run.wait(0.5), *run.steps(10)],
        close_s=run.now_s,
    )
    assert [(row.step, row.values.get("loss")) for row in rows] == [
        (10, 1 / 10), (10, 1 / 10), (0, None), (10, 1 / 10),
    ]  # fmt: skip


@pytest.mark.parametrize(("loss_step", "losses"), [(5, [0.5, 0.5]), (None, [None, 0.5])])
def test_a_loss_without_a_step_is_of_the_last_step(loss_step, losses, run):
    start, steps = run.start(), [report.steps[0] for report in run.steps(10, 100.0)]
    report = msgspec.structs.replace(run.progress(*steps), loss=0.5, loss_step=loss_step)
    assert [row.values.get("loss") for row in fold([start, report], close_s=run.now_s)] == losses


def test_samples_are_averaged_and_what_was_not_measured_stays_empty(run):
    samples = [
        gpu(BEGAN_S + 1.1, gpu_util_pct=80.0, throttle="none"),
        gpu(BEGAN_S + 1.3, gpu_util_pct=90.0, throttle="power+thermal"),
        gpu(BEGAN_S + 1.6, throttle="none"),
        host(BEGAN_S + 1.2),
    ]
    rows = fold([run.start(), *samples, *run.steps(40)], close_s=run.now_s)[2:]
    first, second = (row.gpus[0].values for row in rows)
    assert first == {"gpu_util_pct": 85.0, "throttle": "power+thermal"}
    assert second == {"throttle": "none"}
    assert [row.values.get("cpu_pct") for row in rows] == [150.0, None]


def test_a_mean_that_reaches_back_into_other_settings_is_in_no_row_of_the_new_ones(run):
    """Samples as a sampler sends them: five a second, activity read once a second."""
    items = [run.start(), *run.steps(60), run.change(pipelined="on"), *run.steps(60)]  # 3 s each
    for tick in range(1, 30):
        at_s = tick / 5
        slow_s = max(at_s - 0.4, 0.0) // 1 + 0.4  # read at 0.4, 1.4, 2.4 …
        active = 10.0 if slow_s < 3 else 55.0 if slow_s < 4 else 90.0
        activity = {"sm_active_pct": active, "activity_since_s": BEGAN_S + slow_s - 1}
        busy = 10.0 if at_s <= 3 else 10 + 80 * min(at_s - 3, 1)  # over the second before
        items.append(gpu(BEGAN_S + at_s, gpu_util_pct=busy, power_w=300.0, **activity))
    rows = [row for row in fold(in_order(items), close_s=run.now_s) if row.segment == 1]
    assert [row.gpus[0].values.get("sm_active_pct") for row in rows] == [
        None,
        None,
        90.0,
        90.0,
        90.0,
        90.0,
    ]
    assert [row.gpus[0].values.get("gpu_util_pct") for row in rows] == [
        None,
        90.0,
        90.0,
        90.0,
        90.0,
        90.0,
    ]
    assert all(row.gpus[0].values.get("power_w") == 300.0 for row in rows)


def test_a_value_of_the_wrong_type_is_ignored(run):
    """Another program's source may send one."""
    odd = gpu(BEGAN_S + 0.1, gpu_util_pct="high", throttle=7.0, power_w=300.0)
    (row, *_) = fold([run.start(), odd, *run.steps(20)], close_s=run.now_s)
    assert row.gpus[0].values == {"power_w": 300.0}


def in_order(items):
    """Return records in order of time, samples after the worker's records of the same moment."""
    moments = [getattr(item, "until_s", getattr(item, "at_s", 0.0)) for item in items]
    return [items[index] for index in sorted(range(len(items)), key=moments.__getitem__)]


def metered(run, seconds, reach_samples_s, watts=300.0):
    """A counter read once a second, which samples repeat once they know of it."""
    items = []
    for tick in range(seconds * 5):
        at_s = BEGAN_S + tick / 5
        known = [at for at, late_s in enumerate(reach_samples_s) if BEGAN_S + at + late_s <= at_s]
        energy = {"energy_j": 7000.0 + watts * known[-1], "energy_at_s": BEGAN_S + known[-1]}
        items += [gpu(at_s, **energy), *run.steps(2, 100.0)]
    return items


@pytest.mark.parametrize("late_s", [0.0, 0.6])
def test_energy_is_even_although_its_counter_is_read_once_a_second(late_s, run):
    late = [0.0] + [late_s, 0.0] * 3  # every other reading takes long
    rows = fold([run.start(), *metered(run, 6, late)], close_s=run.now_s)
    energies = [row.gpus[0].values.get("energy_j") for row in rows]
    assert energies[:10] == pytest.approx([150.0] * 10)
    assert energies[-1] is None  # the counter was never read after its end


def making(report, skipped, **transform_ms):
    return msgspec.structs.replace(report, transform_ms=transform_ms, skipped_samples=skipped)


def test_what_loader_workers_report_is_the_newest_in_the_row(run):
    items = [
        run.start(),
        making(run.step(100.0), 0, decode=1.0),
        making(run.step(100.0), 2, decode=2.0),
        making(run.step(200.0), 2),  # no batch was taken since the one before
        making(run.step(400.0), 3, decode=4.0),
        making(run.step(200.0), 3),
    ]
    rows = fold(items, close_s=BEGAN_S + 1.2)
    assert [row.ranks[0].transform_ms for row in rows] == [{"decode": 2.0}, {"decode": 4.0}, {}]
    assert [row.values.get("skipped_samples") for row in rows] == [2, 3, 3]


def test_skipped_samples_are_unknown_before_the_first_report_and_after_a_restart():
    run = Trainer(BEGAN_S + 0.6)
    rows = fold(
        [
            run.start(),
            *(making(report, 5) for report in run.steps(9, 100.0)),
            run.start(),
            run.wait(0.4),
            *run.steps(6, 100.0),
        ],
        close_s=run.now_s,
    )
    assert [(row.segment, row.values.get("skipped_samples")) for row in rows] == [
        (0, None),
        (0, 5),
        (0, 5),
        (1, 0),
        (1, 0),
    ]


def test_a_row_has_the_mean_time_of_its_steps_and_when_the_last_one_finished(run):
    alike = msgspec.structs.replace(step(4, BEGAN_S + 0.4, 100.0), count=4)
    run.now_s, run.number = alike.finished_s, 4
    items = [Trainer().start(), run.progress(alike), run.step(50.0)]
    (rank,) = fold(items, close_s=BEGAN_S + 0.5)[0].ranks
    assert (rank.timed, rank.values["step_ms"]) == (5, 90.0)
    assert rank.finished_s == run.now_s


def test_a_row_has_the_mean_of_each_phase_where_it_was_measured(run):
    first, second, third = (run.step().steps[0] for _ in range(3))
    longer = measured(second, forward_ms=20.0, backward_ms=4.0)
    unmeasured = measured(third, forward_ms=None)
    items = [Trainer().start(), run.progress(first, longer, unmeasured)]
    (row,) = fold(items, close_s=run.now_s)
    assert (row.values["forward_ms"], row.values["backward_ms"]) == (15.0, 4.0)


def test_a_lever_that_is_changed_in_a_pause_does_not_end_it(run):
    before = [run.start(), *run.steps(10), run.pause()]
    paused_s = run.now_s
    held = [run.wait(1.0), run.turn(settings=run.settings | {"batch_size": "16"}), run.wait(1.0)]
    rows = fold([*before, *held, run.resume(), *run.steps(10)], close_s=run.now_s)
    assert paused_s == BEGAN_S + 0.5
    assert sum(row.train_s for row in rows) == pytest.approx(1.0)
