import sys

import msgspec
import pytest

from gpudash.protocol.commands import PROFILE_LIMIT_S, Change, Plan, Profile
from gpudash.protocol.inspections import Profiled
from gpudash.protocol.readings import GpuMissing, OtherJobs
from gpudash.protocol.session import ComparisonShown, NewRow, Notice
from gpudash.protocol.training import BlocksEnded, Hello, Lever, Note, Offered, Refused, Status
from gpudash.reference_levers import reference_levers
from gpudash.snapshot import Hang
from gpudash.views.live import (
    MOST_BLOCKS,
    MOST_MARKERS,
    MOST_VERDICTS,
    OTHERS_S,
    PASSING_S,
    STALL_S,
    LiveView,
)
from tests.having import having
from tests.lives import failed, paused, resumed, said, starting, stopped
from tests.scripted_run import BEGAN_S, DEVICE, PLAN, SETTINGS, Trainer, gpu, host


class Watched:
    """A live view, and the training that it shows."""

    def __init__(self, plan=PLAN):
        self.window = LiveView(plan, BEGAN_S)
        self.run = Trainer()

    def feed(self, *items, rank=0):
        for item in items:
            self.window.take(said(self.run.say(item), rank=rank))
        return self

    def trained(self, count=40, step_ms=50.0):
        return self.feed(self.run.start(), *self.run.steps(count, step_ms))

    def now(self, later_s=0.0):
        return self.window.snapshot(self.run.now_s + later_s)


@pytest.fixture
def watched():
    """A training of forty steps, in two seconds."""
    return Watched().trained()


def test_before_the_worker_is_ready_the_status_says_what_it_waits_for():
    watched = Watched(Plan(workload="encdec", settings={"batch_size": "4"}, steps=200))
    assert watched.now() == having(
        state="starting",
        status="starting",
        workload="encdec",
        settings={"batch_size": "4"},
        planned_steps=200,
        steps_per_s=None,
    )
    assert watched.feed(Status(text="loading torch")).now() == having(
        state="starting", status="loading torch"
    )


def test_a_training_is_shown_with_its_rates_counts_and_loss():
    shown = Watched().trained().now()
    assert shown == having(
        state="training",
        status="",
        worker_pid=42,
        device=DEVICE,
        settings=SETTINGS,
        total_steps=40,
        total_samples=320,
        loss=1 / 40,
        steps_per_s=pytest.approx(20.0),
        samples_per_s=pytest.approx(160.0),
        step_ms_p50=50.0,
        step_ms_p95=50.0,
        elapsed_s=pytest.approx(2.0),
    )
    assert shown.series.of("steps_per_s")[1:] == pytest.approx((20.0,) * 3)
    assert shown.notes == ("8 loader workers",)
    assert [phase.name for phase in shown.phases] == ["forward"]
    assert any(shown.series.of("loss"))


def test_a_change_is_pending_until_the_worker_answers_and_then_marked(watched):
    watched.feed(Change(id=7, settings={"batch_size": "16"}))
    assert watched.now() == having(
        state="switching", pending={"batch_size": "16"}, status="switching batch_size to 16 …"
    )
    shown = watched.feed(watched.run.change(batch_size="16")).now()
    assert (shown.state, shown.pending, shown.status) == ("training", {}, "")
    assert shown.settings["batch_size"] == "16"
    assert [(mark.at_s, mark.label) for mark in shown.markers] == [(2.0, "batch_size=16")]


def test_a_first_step_that_takes_long_names_its_settings_and_not_those_asked_for_since(watched):
    watched.feed(Change(id=7, settings={"batch_size": "8192"}))
    watched.feed(watched.run.change(batch_size="8192"))
    assert watched.now(STALL_S - 0.1).status == ""
    first = "first step with batch_size 8192: 14 s so far"
    assert watched.now(14.0).status == first
    watched.feed(Change(id=8, settings={"batch_size": "16384"}))
    assert watched.now(14.0) == having(
        state="switching", status=f"{first}; then batch_size to 16384"
    )
    watched.feed(watched.run.change(batch_size="16384"), watched.run.step(9e3))
    assert watched.now(14.0).status == ""


def test_a_refused_change_is_explained_until_something_else_happens(watched):
    watched.feed(Change(id=7, settings={"batch_size": "99999"}))
    assert watched.feed(
        Refused(
            answers=(7,),
            kind="bad_setting",
            changes={"batch_size": "99999"},
            reason="batch_size=99999: too large",
        )
    ).now() == having(
        state="training", pending={}, status_line="training – refused: batch_size=99999: too large"
    )
    assert watched.feed(watched.run.pause()).now().status == "paused"


def test_what_is_refused_before_the_first_step_does_not_hide_what_the_start_is_at():
    watched = Watched()
    watched.feed(Status(text="torch is imported; no training step so far"))
    watched.feed(Refused(kind="no_profile", changes={}, reason="nothing is training"))
    shown = watched.now()
    assert shown.state == "starting"
    assert shown.status.startswith("torch is imported")
    assert shown.status_line.endswith(" – refused: nothing is training")


def test_a_paused_training_stands_still_and_comes_back(watched):
    shown = watched.feed(watched.run.pause(), watched.run.wait(2.0)).now()
    assert shown == having(state="paused", status="paused", steps_per_s=0.0, step_ms_p50=None)
    assert shown.series.of("steps_per_s")[-2:] == (0.0, 0.0)
    assert shown.series.of("step_ms")[-1] is None
    shown = watched.feed(watched.run.resume()).now()
    assert shown == having(state="training", steps_per_s=pytest.approx(20.0))
    marks = [("asked", "paused"), ("asked", "resumed")]
    assert [(mark.kind, mark.label) for mark in shown.markers] == marks


@pytest.mark.parametrize(
    ("why", "doing"), [("evaluation", "evaluating"), ("checkpoint", "saving a checkpoint")]
)
def test_a_training_that_evaluates_or_saves_says_so_and_trains_on_as_before(why, doing, watched):
    steps = watched.now().steps_since_break
    aside = paused(watched.run.now_s, after_step=watched.run.number, why=why)
    shown = watched.feed(aside, watched.run.wait(60.0)).now()
    assert (shown.state, shown.status, shown.doing) == ("training", doing, why)
    assert shown.quiet_s is None  # it is known what takes so long
    assert shown.steps_per_s < 1
    assert shown.series.of("steps_per_s")[-1] == 0.0
    shown = watched.feed(watched.run.resume()).now()
    assert shown == having(
        state="training",
        status="",
        doing=None,
        steps_per_s=pytest.approx(20.0),
        steps_since_break=steps,
    )
    assert [(one.at_s, one.kind, one.lasts_s) for one in shown.markers] == [(2.0, why, 60.0)]
    assert shown.asides == shown.markers


def test_short_evaluations_leave_the_time_axis_to_others(watched):
    watched.feed(paused(watched.run.now_s, why="evaluation"), watched.run.wait(0.2))
    shown = watched.feed(watched.run.resume()).now()
    assert shown.markers == ()
    assert [(one.kind, one.lasts_s) for one in shown.asides] == [("evaluation", pytest.approx(0.2))]
    assert shown.steps_per_s == pytest.approx(20.0)


def test_a_training_asked_to_pause_while_it_evaluates_is_paused(watched):
    watched.feed(paused(watched.run.now_s, why="evaluation"))
    assert watched.feed(watched.run.pause()).now().state == "paused"
    shown = watched.feed(watched.run.resume()).now()
    assert (shown.state, [mark.label for mark in shown.markers]) == (
        "training",
        ["paused", "resumed"],
    )


def test_what_was_found_in_a_script_is_shown_with_its_levers_until_another_worker_starts():
    lever = Lever(
        name="compile", kind="switch", default="off", summary="torch.compile", source="torch"
    )
    offered = Offered(found="AdamW, root GPT", levers=(lever,), complete=False)
    watched = Watched().feed(offered)
    shown = watched.trained().now()
    assert (shown.found, shown.levers) == ("AdamW, root GPT", (lever,))
    assert not shown.levers_complete
    assert watched.feed(msgspec.structs.replace(offered, complete=True)).now().levers_complete
    shown = watched.feed(starting(watched.run.now_s, PLAN)).now()
    assert (shown.found, lever in shown.levers) == ("", False)


def test_the_levers_of_a_workload_are_known_before_it_trains():
    begun, trained = Watched().now(), Watched().trained().now()
    assert begun.levers == trained.levers == reference_levers("encdec", {})


def test_a_slow_step_in_progress_is_waited_for_and_then_drawn_level():
    watched = Watched().trained(3, 3000.0)
    before = watched.now().series
    shown = watched.feed(watched.run.wait(2.5)).now()
    assert shown.series is before
    assert shown.steps_per_s == pytest.approx(1 / 3)
    watched.run.now_s -= 2.5
    shown = watched.feed(watched.run.step(3000.0)).now()
    assert shown.series.of("steps_per_s")[1:] == pytest.approx([1 / 3] * 23)


def test_a_step_is_waited_for_until_the_patience_is_over(watched):
    before = watched.now().series
    assert watched.feed(watched.run.wait(STALL_S)).now().series is before
    assert watched.feed(watched.run.wait(0.5)).now().series is not before


def test_a_step_up_to_three_times_the_longest_is_not_mentioned():
    watched = Watched().trained(3, 3000.0)
    assert watched.now(later_s=9.0).quiet_s is None
    assert watched.now(later_s=9.5).quiet_s == 9.5


def test_in_a_hang_the_rate_is_0(watched):
    """The rate is 0, not that of the last steps diluted by a long silence."""
    assert watched.now(later_s=1.0).samples_per_s > 0
    shown = watched.window.snapshot(watched.run.now_s + 20.0, Hang(for_s=20.0))
    assert (shown.steps_per_s, shown.samples_per_s, shown.step_ms_p50) == (0.0, 0.0, None)
    assert shown.hang is not None


def test_in_a_pause_samples_that_nobody_counts_remain_unknown():
    watched = Watched().feed(Trainer().start())
    uncounted = [
        msgspec.structs.replace(
            one, steps=tuple(msgspec.structs.replace(step, samples=None) for step in one.steps)
        )
        for one in watched.run.steps(5)
    ]
    watched.feed(*uncounted, paused(watched.run.now_s))
    assert watched.now() == having(steps_per_s=0.0, samples_per_s=None)


@pytest.mark.parametrize(
    ("ends", "state", "status"),
    [
        (lambda run: run.finish(), "finished", "finished after 40 steps"),
        (lambda run: failed(run.now_s, "The worker is gone."), "failed", "The worker is gone"),
        (lambda run: stopped(run.now_s), "stopped", "stopped"),
    ],
    ids=["finished", "failed", "stopped"],
)
def test_after_its_end_a_training_stays_what_it_has_reached(ends, state, status, watched):
    reached = watched.now()
    shown = watched.feed(ends(watched.run)).now(later_s=60.0)
    assert shown == having(state=state, status=status, elapsed_s=2.0, training_s=2.0)
    assert not shown.results[0].live
    for name in ("total_steps", "steps_per_s", "samples_per_s", "step_ms_p50", "loss"):
        assert getattr(shown, name) == getattr(reached, name)
    watched.feed(starting(watched.run.now_s + 70.0, PLAN))
    assert watched.now(later_s=75.0).elapsed_s == pytest.approx(77.0)


def test_the_charts_end_with_the_training_and_go_on_with_the_next_one(watched):
    watched.feed(watched.run.finish())
    end_s = watched.now().series.at_s[-1]
    watched.run.now_s += 60.0
    watched.feed(gpu(watched.run.now_s), host(watched.run.now_s))
    assert watched.now().series.at_s[-1] == end_s
    watched.feed(starting(watched.run.now_s, PLAN)).trained()
    shown = watched.feed(gpu(watched.run.now_s)).now()
    assert shown.series.at_s[-1] == pytest.approx(64.0, abs=0.5)


def test_the_training_is_timed_from_each_workers_start_to_its_end():
    watched = Watched()
    watched.run.now_s += 5.0
    assert watched.now().training_s is None
    assert watched.trained().now() == having(
        training_s=pytest.approx(2.0), elapsed_s=pytest.approx(7.0)
    )
    watched.feed(starting(watched.run.now_s, PLAN))
    assert watched.now().training_s is None
    assert watched.trained(20).feed(watched.run.finish()).now(later_s=60.0) == having(
        training_s=pytest.approx(1.0)
    )


def test_a_notice_outlives_steps_and_an_evaluation_until_the_next_change_of_state(watched):
    watched.feed(Notice(text="the disk is full"))
    shown = watched.feed(watched.run.step(), gpu(BEGAN_S + 2.0), host(BEGAN_S + 2.0)).now()
    assert shown.status_line == "training – the disk is full"
    shown = watched.feed(paused(watched.run.now_s, why="evaluation")).now()
    assert shown.status_line == "evaluating – the disk is full"
    assert watched.feed(watched.run.resume()).now().status_line == "training – the disk is full"
    changed = watched.run.change_and({"answers": (7,)}, pipelined="on")
    assert watched.feed(changed).now().status == ""


def test_notes_are_those_of_the_settings_in_force(watched):
    assert watched.now().notes == ("8 loader workers",)
    note = Note(lever=None, text="no streams")
    noted = watched.run.change_and({"notes": (note,)}, pipelined="on")
    assert watched.feed(noted).now().notes == ("no streams",)
    none = watched.run.change_and({"notes": ()}, pipelined="off")
    assert watched.feed(none).now().notes == ()


def test_a_failure_says_what_happened(watched):
    watched.feed(Change(id=7, settings={"batch_size": "4096"}))
    assert watched.feed(
        failed(watched.run.now_s, "The GPU is full.", "out_of_memory")
    ).now() == having(state="failed", status="The GPU is full", pending={})


def test_a_restart_keeps_the_past_and_mixes_nothing(watched):
    watched.feed(watched.run.pause())
    plan = Plan(workload="encdec", settings=SETTINGS | {"batch_size": "4"})
    watched.feed(starting(watched.run.now_s, plan))
    assert watched.now() == having(
        state="starting", status="restarting", total_steps=0, worker_pid=None
    )
    watched.run.now_s += 2.0
    start = watched.run.start(plan.settings)
    shown = watched.feed(start, *watched.run.steps(40, 100.0)).now()
    assert [row.steps for row in shown.results] == [35, 35]
    assert [row.live for row in shown.results] == [False, True]
    assert shown == having(total_steps=40, steps_per_s=pytest.approx(10.0))
    assert shown.markers[-1].label == "restart"
    rates = shown.series.of("steps_per_s")
    assert rates[1:4] == pytest.approx((20.0,) * 3)
    assert rates[4:9] == (None,) * 5  # nobody was there to train
    assert rates[9:] == pytest.approx((10.0,) * 7)


def test_a_process_that_takes_the_place_of_one_that_died_while_it_evaluated_trains(watched):
    watched.feed(paused(watched.run.now_s, why="evaluation"))
    assert watched.now().status == "evaluating"
    watched.run.now_s += 5.0
    shown = watched.feed(watched.run.start(pid=43)).now()
    assert (shown.status, shown.steps_since_break) == ("", 0)
    assert [mark.kind for mark in shown.markers] == ["restart"]


def test_another_workload_begins_anew_and_the_one_before_has_its_rows_again():
    watched = Watched().trained().feed(comparison())
    block(watched, 0, pipelined="on")
    before = home(watched, pipelined="off").now()
    assert before.series.at_s
    assert before.blocks
    watched.feed(starting(watched.run.now_s, Plan(workload="augment", settings={})))
    shown = watched.now()
    assert (shown.series.at_s, shown.blocks, shown.results) == ((), (), ())
    watched.feed(watched.run.start(workload="augment"), *watched.run.steps(40))
    shown = watched.now()
    assert shown.series.at_s[0] > before.series.at_s[-1]
    assert [(row.workload, row.number) for row in shown.results] == [("augment", 1)]
    assert shown.others == ("encdec",)
    watched.feed(starting(watched.run.now_s, PLAN))
    of_before = [(row.configuration, row.steps) for row in before.results]
    assert [(row.configuration, row.steps) for row in watched.now().results] == of_before
    assert [marker.label for marker in watched.now().markers] == ["workload=encdec"]


def test_joules_of_a_sample_are_those_of_rank_0_on_its_own_gpu():
    """Four ranks train four times the samples, and rank 0's GPU does a fourth of the work."""
    watts, found = 400.0, []
    for ranks in (1, 4):
        watched = Watched()
        watched.feed(watched.run.start(world_size=ranks))
        for second in range(8):
            now_s = watched.run.now_s
            watched.feed(gpu(now_s, energy_j=watts * second), *watched.run.steps(20, 50.0))
        (row,) = watched.now().results
        assert row.samples_per_s == pytest.approx(160.0 * ranks)
        found.append(row.energy.joules)
    assert found == [pytest.approx(watts / 160.0)] * 2


def test_no_joules_are_of_ranks_that_share_a_gpu_or_of_a_process_that_has_several():
    for about, ranks in (({"gpus": 2}, 1), ({}, 2)):
        watched = Watched()
        begun = watched.run.start(world_size=ranks, **about)
        for rank in reversed(range(ranks)):
            watched.feed(begun, rank=rank)
        for second in range(8):
            now_s = watched.run.now_s
            watched.feed(gpu(now_s, energy_j=400.0 * second), *watched.run.steps(20, 50.0))
        (row,) = watched.now().results
        assert row == having(samples_per_s=pytest.approx(160.0 * ranks), energy=None)


def test_until_the_device_is_known_the_gpu_that_was_seen_first_is_shown():
    watched = Watched()
    mine, other = gpu(BEGAN_S), gpu(BEGAN_S, uuid="GPU-2222", index=1)
    assert watched.feed(other, mine).now().gpu == other
    newer = gpu(BEGAN_S + 0.2, uuid="GPU-2222", index=1)
    assert watched.feed(newer).now().gpu == newer
    assert watched.trained().feed(mine, other).now().gpu == mine


def test_where_the_device_does_not_name_itself_the_gpu_that_was_seen_first_is_shown():
    watched = Watched()
    watched.feed(watched.run.start(device=msgspec.structs.replace(DEVICE, uuid=None)))
    mine, other = gpu(BEGAN_S), gpu(BEGAN_S, uuid="GPU-2222", index=1)
    assert watched.feed(mine, other).now().gpu == mine


def test_why_no_gpu_is_read_and_what_may_be_asked_is_passed_on():
    watched = Watched().feed(GpuMissing(why="no NVIDIA driver"), Hello(can=("pause",)))
    assert (watched.now().gpu_missing, watched.now().can) == ("no NVIDIA driver", ("pause",))
    assert watched.feed(GpuMissing(why=None)).now().gpu_missing is None


def test_the_last_reading_of_a_lost_gpu_is_not_its_present_one():
    watched = Watched()
    watched.feed(watched.run.start(), gpu(BEGAN_S), GpuMissing(why="the GPU was lost"))
    assert watched.now().gpu is None
    watched.feed(GpuMissing(why=None, values={"power": "refused"}), again := gpu(BEGAN_S + 1))
    assert (watched.now().gpu, watched.now().gpu_unread) == (again, {"power": "refused"})


def test_no_more_than_the_newest_markers_are_kept(watched):
    for _ in range(MOST_MARKERS):
        watched.feed(watched.run.pause(), watched.run.resume())
    watched.feed(watched.run.pause())
    markers = watched.now().markers
    assert len(markers) == MOST_MARKERS
    assert markers[-1].label == "paused"


def test_a_snapshot_of_a_long_run_costs_no_more_than_of_a_short_one(watched):
    def calls():
        watched.feed(*watched.run.steps(5_000, 150.0)).now()
        watched.feed(watched.run.step(150.0))
        count = 0

        def counted(frame, event, arg):
            nonlocal count
            count += 1

        sys.setprofile(counted)
        try:
            watched.now()
        finally:
            sys.setprofile(None)
        return count

    short, long = calls(), calls()
    # both are longer than what is kept, ten minutes and 4096 steps
    assert long <= 1.1 * short


# ── blocks of a comparison ──────────────────────────────────────────────────────────────

VERDICT = "pipelined=on is 6.3 % faster [5.9, 6.8], 40 pairs, control passed"


def block(watched, number, **changes):
    """The worker enters a block and trains in it."""
    return watched.feed(watched.run.enter_block(number, **changes), *watched.run.steps(8))


def home(watched, run=1, **changes):
    """The worker has left the blocks and trains on; without a run, at a user's change."""
    event = watched.run.leave_blocks((7,) if run is None else (), **changes)
    ended = BlocksEnded(at_s=watched.run.now_s, run=1, why="no block is left")
    return watched.feed(event, ended, *watched.run.steps(8))


def comparison(pairs=0, **values):
    known = {"change": None, "low": None, "high": None, "verdict": None, "failure": None}
    known |= {"a": "off", "b": "on"}
    return ComparisonShown(
        lever="pipelined",
        pairs=pairs,
        planned_pairs=40,
        history=(),
        **(known | values),
    )


def labels(shown):
    return [marker.label for marker in shown.markers]


def test_blocks_make_neither_rows_nor_markers_nor_settings_of_their_own(watched):
    watched.feed(comparison(3))
    before = watched.now()
    (row,) = before.results
    assert row.live
    resting = msgspec.structs.replace(row, live=False)
    for number, value in enumerate(("off", "on", "on", "off", "off", "on")):
        shown = block(watched, number, pipelined=value).now()
        assert shown == having(
            state="training",
            settings=SETTINGS,
            pending={},
            status="A/B: pipelined off or on, 3 of 40 pairs",
            results=(resting,),
            notes=before.notes,
        )
        assert labels(shown) == ["A/B"]
    shown = home(watched, pipelined="off").now()
    assert (shown.settings, shown.status) == (SETTINGS, "")
    assert labels(shown) == ["A/B", "end of A/B"]
    assert [(one.number, one.steps, one.live) for one in shown.results] == [(1, 35 + 8 - 5, True)]
    assert shown.total_steps == 40 + 7 * 8


def sides(shown):
    return [
        (round(one.begin_s, 6), one.end_s and round(one.end_s, 6), one.side) for one in shown.blocks
    ]


def test_blocks_are_stretches_of_time_with_their_side_and_where_their_steps_begin_to_count(watched):
    watched.feed(comparison(3))
    block(watched, 0, pipelined="off")
    shown = block(watched, 1, pipelined="on").now()
    assert sides(shown) == [(2.0, 2.4, "a"), (2.4, None, "b")]
    assert [one.counts_s for one in shown.blocks] == pytest.approx([2.1, 2.5])
    shown = home(watched, pipelined="off").now()
    assert sides(shown) == [(2.0, 2.4, "a"), (2.4, 2.8, "b")]


def test_the_runs_end_and_a_restart_end_a_block():
    for end in (stopped, lambda at_s: starting(at_s, PLAN)):
        watched = Watched().trained()
        watched.feed(comparison())
        block(watched, 0, pipelined="on")
        shown = watched.feed(end(watched.run.now_s)).now()
        assert sides(shown) == [(2.0, 2.4, "b")]


def test_blocks_of_neither_side_are_not_shown(watched):
    block(watched, 0, pipelined="on")
    assert watched.now().blocks == ()
    watched.feed(comparison(a="off", b="sometimes"))
    block(watched, 1, pipelined="on")
    assert watched.now().blocks == ()


def test_the_newest_blocks_are_kept(watched):
    watched.feed(comparison())
    for number in range(MOST_BLOCKS + 5):
        block(watched, number, pipelined=("off", "on")[number % 2])
    assert len(watched.now().blocks) == MOST_BLOCKS


@pytest.mark.parametrize("early", [True, False])
def test_a_verdict_is_shown_once_the_blocks_are_over_and_is_no_row(early, watched):
    watched.feed(comparison(40))
    block(watched, 0, pipelined="on")
    if early:
        watched.feed(comparison(40, verdict=VERDICT))
        assert watched.now().status_line == "the A/B is over"
    home(watched, pipelined="off")
    if not early:
        watched.feed(comparison(40, verdict=VERDICT))
    shown = watched.now()
    assert shown.status_line == f"training – {VERDICT}"
    (row,) = shown.results
    assert (row.number, row.live) == (1, True)
    changed = watched.run.change_and({"answers": (7,)}, batch_size="16")
    assert watched.feed(changed).now().status == ""


def concluded(watched, verdict=VERDICT, **values):
    """A comparison runs to its verdict, which each of the last messages repeats."""
    watched.feed(comparison(1, **values), comparison(2, **values))
    return watched.feed(*[comparison(3, verdict=verdict, **values)] * 2)


def test_each_concluded_comparison_is_kept_once_with_what_the_other_levers_were_set_to(watched):
    watched.feed(comparison(3, failure="ended"))
    assert watched.now().verdicts == ()
    concluded(watched)
    watched.feed(watched.run.change(batch_size="16"), *watched.run.steps(8))
    (first, second) = concluded(watched).now().verdicts
    others = {name: value for name, value in SETTINGS.items() if name != "pipelined"}
    assert first == comparison(3, verdict=VERDICT, settings=others)
    assert second == comparison(3, verdict=VERDICT, settings=others | {"batch_size": "16"})
    watched.feed(comparison(2), comparison(3, verdict=VERDICT))  # none of them is repeated
    assert len(watched.now().verdicts) == 3


def test_only_so_many_verdicts_are_kept_the_newest(watched):
    for number in range(MOST_VERDICTS + 7):
        concluded(watched, str(number))
    verdicts = watched.now().verdicts
    assert [shown.verdict for shown in verdicts] == [str(n + 7) for n in range(MOST_VERDICTS)]


def test_verdicts_outlive_a_restart_and_another_workload_shows_its_own(watched):
    concluded(watched)
    for workload, verdicts, is_shown in (
        ("encdec", 1, True),
        ("augment", 0, False),
        ("encdec", 1, False),  # the one before was of another workload
    ):
        plan = msgspec.structs.replace(PLAN, workload=workload)
        shown = watched.feed(starting(watched.run.now_s, plan)).now()
        assert len(shown.verdicts) == verdicts
        assert (shown.comparison is not None) == is_shown


def test_a_verdict_is_not_shown_again_after_a_later_comparison_without_one(watched):
    block(watched, 0, pipelined="on")
    watched.feed(comparison(40, verdict=VERDICT))
    home(watched, None, pipelined="off", batch_size="16")  # the user's change ended the blocks
    assert watched.now().status_line == f"training – {VERDICT}"
    block(watched, 1, pipelined="on")
    assert home(watched, pipelined="off").now().status == ""


def test_a_change_that_ends_the_blocks_is_named_without_the_way_back(watched):
    block(watched, 0, pipelined="on")
    watched.feed(Change(id=7, settings={"batch_size": "16"}))
    assert watched.now().status == "switching batch_size to 16 …"
    shown = home(watched, None, pipelined="off", batch_size="16").now()
    assert labels(shown) == ["A/B", "batch_size=16"]
    assert (shown.state, shown.settings) == ("training", SETTINGS | {"batch_size": "16"})
    assert [row.configuration for row in shown.results][1:] == ["batch_size=16"]


def test_out_of_memory_in_a_block_is_shown_once_the_blocks_are_over(watched):
    watched.feed(comparison())
    block(watched, 0, batch_size="8")
    reason = "out of memory with batch_size=4096: went back to batch_size=8"
    refused = Refused(
        kind="bad_setting", changes={"batch_size": "4096"}, reason=reason, run=1, block=1
    )
    back = watched.run.enter_block(None, batch_size="8")
    watched.feed(refused, back)  # it tells in this order
    assert watched.now().status.startswith("A/B: ")
    assert labels(watched.now()) == ["A/B"]
    shown = home(watched).now()
    assert shown.status_line == f"training – refused: {reason}"
    assert labels(shown) == ["A/B", "end of A/B"]
    assert [row.number for row in shown.results] == [1]


def test_a_pause_within_blocks_is_a_pause(watched):
    block(watched.feed(comparison(3)), 0, pipelined="on")
    assert watched.feed(watched.run.pause()).now().status == "paused"
    assert watched.feed(watched.run.resume()).now().status.startswith("A/B: ")
    home(watched, pipelined="off")
    assert labels(watched.now()) == ["A/B", "paused", "resumed", "end of A/B"]


def test_a_restart_within_blocks_ends_them(watched):
    block(watched.feed(comparison(3)), 0, pipelined="on")
    watched.feed(comparison(40, verdict=VERDICT))
    watched.feed(starting(watched.run.now_s, PLAN))
    assert watched.feed(watched.run.start(), *watched.run.steps(8)).now() == having(status="")
    shown = watched.feed(watched.run.change(pipelined="on")).now()
    assert labels(shown)[-1] == "pipelined=on"
    assert shown.status == ""


def test_a_new_row_within_blocks_begins_when_they_are_over(watched):
    block(watched, 0, pipelined="on")
    watched.feed(NewRow())
    block(watched, 1, pipelined="off")
    home(watched)
    assert [row.steps for row in watched.now().results] == [35, 3]


def test_the_workers_own_cost_and_its_loaders_figures_are_passed_on(watched):
    assert (watched.now().instruments_ms, watched.now().transform_ms) == (0.0, {})
    last = msgspec.structs.replace(
        watched.run.step(), transform_ms={"decode": 2.5}, skipped_samples=3, instruments_ms=0.02
    )
    shown = watched.feed(last).now()
    assert shown.instruments_ms == pytest.approx(0.02 / watched.run.number)  # of all steps lately
    assert shown.skipped_samples == 3
    assert shown.transform_ms == {"decode": 2.5}
    quiet = msgspec.structs.replace(watched.run.wait(0.05), skipped_samples=3, instruments_ms=9.0)
    shown = watched.feed(quiet).now()  # no step was finished, no sample made
    assert shown == having(
        instruments_ms=pytest.approx(9.02 / watched.run.number), transform_ms={"decode": 2.5}
    )


def test_a_profile_that_outlasts_its_limit_says_for_how_long_its_step_has(watched):
    began_s = watched.run.now_s
    watched.feed(paused(began_s, why="profile"))
    limit_s = began_s + PROFILE_LIMIT_S
    assert watched.window.snapshot(limit_s).quiet_s is None
    assert watched.window.snapshot(limit_s + 30).quiet_s == pytest.approx(30)


def test_a_training_in_which_no_step_finishes_says_for_how_long(watched):
    assert watched.now().quiet_s is None
    ended_s = watched.run.now_s
    assert watched.window.snapshot(ended_s + 4.9).quiet_s is None
    assert watched.window.snapshot(ended_s + 30).quiet_s == pytest.approx(30, abs=1)
    watched.feed(paused(ended_s))
    assert watched.window.snapshot(ended_s + 30).quiet_s is None
    watched.feed(resumed(ended_s + 40))
    assert watched.window.snapshot(ended_s + 44).quiet_s is None
    watched.run.now_s = ended_s + 46
    assert watched.feed(watched.run.step()).window.snapshot(watched.run.now_s).quiet_s is None
    finished = watched.feed(watched.run.finish())
    assert finished.window.snapshot(watched.run.now_s + 30).quiet_s is None


def test_steps_are_counted_since_the_last_start_change_or_pause():
    watched = Watched().trained(12)
    assert watched.now().steps_since_break == 12
    watched.feed(watched.run.change(batch_size="16"))
    assert watched.now().steps_since_break == 0
    watched.feed(*watched.run.steps(3))
    assert watched.now().steps_since_break == 3
    watched.feed(watched.run.pause(), watched.run.wait(1.0), watched.run.resume())
    assert watched.now().steps_since_break == 0
    watched.feed(*watched.run.steps(2), watched.run.change())
    assert watched.now().steps_since_break == 0


def allocated(report, **mib):
    return msgspec.structs.replace(report, values=mib)


def test_device_memory_stands_among_the_values_of_the_training_process_and_over_time(watched):
    report = allocated(watched.run.step(), mem_reserved_mib=900.0, mem_peak_mib=700.0)
    reading = host(watched.run.now_s + 0.1, 321.0)
    shown = watched.feed(report, reading, *watched.run.steps(20)).now()
    assert shown.host.values["cpu_pct"] == 321.0
    assert shown.host.values["mem_reserved_mib"] == 900.0
    assert 900.0 in shown.series.of("mem_reserved_mib")
    assert shown.results[0].values["mem_peak_mib"] == 700.0


def test_device_memory_is_shown_where_nobody_reads_the_host_and_forgotten_with_the_worker(watched):
    shown = watched.feed(allocated(watched.run.step(), mem_reserved_mib=900.0)).now()
    assert shown.host.values == {"mem_reserved_mib": 900.0}
    assert watched.feed(starting(watched.run.now_s, PLAN)).now().host is None


# ── profiles ────────────────────────────────────────────────────────────────────────────


def test_a_profile_is_pending_until_it_arrives(watched):
    watched.feed(Profile(id=7, steps=3, path="trace.json"))
    assert watched.now().profiling
    at_s = watched.run.now_s
    watched.feed(paused(at_s, after_step=40, why="profile"))
    assert (watched.now().state, watched.now().status) == ("training", "profiling")
    found = Profiled(
        at_s=at_s, answers=(7,), path="trace.json", first_step=41, steps=3, steps_ms=9, took_ms=9
    )
    assert watched.feed(found, resumed(at_s)).now() == having(
        profiling=False, profile=found, profile_refusal="", state="training", status=""
    )


def test_a_profile_is_of_the_settings_that_it_was_made_with(watched):
    before = watched.now().settings
    at_s = watched.run.now_s
    found = Profiled(at_s=at_s, path="t.json", first_step=41, steps=3, steps_ms=9, took_ms=9)
    watched.feed(found, watched.run.change(loss="sorted"))
    shown = watched.now()
    assert shown.settings != before
    assert shown.profile_of == (shown.workload, before)


@pytest.mark.parametrize("kind", ["no_profile", "no_memory_owners"])
def test_why_a_profile_or_memory_was_refused_is_shown_for_a_while(kind, watched):
    watched.feed(Refused(kind=kind, changes={}, reason="the training is on the CPU"))
    assert watched.now().status_line == "training – refused: the training is on the CPU"
    watched.feed(watched.run.step())
    assert watched.now().status_line == "training – refused: the training is on the CPU"
    watched.feed(*watched.run.steps(2, 1e3 * PASSING_S))
    assert watched.now().status == ""


def test_why_there_is_no_profile_is_shown_until_the_next_is_asked_for(watched):
    watched.feed(Profile(id=7, steps=3, path="trace.json"))
    watched.feed(Refused(answers=(7,), kind="no_profile", changes={}, reason="an A/B is running"))
    assert watched.now() == having(
        profiling=False,
        profile_refusal="an A/B is running",
        status_line="training – refused: an A/B is running",
    )
    watched.feed(Profile(id=8, steps=3, path="trace.json"))
    assert watched.now().profile_refusal == ""


def test_other_jobs_are_shown_for_a_while_after_they_were_read(watched):
    jobs = OtherJobs(at_s=watched.run.now_s, used_cores=1.2, cores=2)
    assert watched.feed(jobs).now(OTHERS_S / 2).other_jobs == jobs
    assert watched.now(OTHERS_S).other_jobs is None
