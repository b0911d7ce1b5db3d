"""What limits the training: each rule, its threshold, and which of them comes first."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.diagnosis.gains import Case, gain_of
from gpudash.diagnosis.headline import why_lines
from gpudash.diagnosis.recent_step import RecentStep, recent_step
from gpudash.diagnosis.rules import (
    CPU_PCT,
    DATA_PCT,
    DEVICE_PCT,
    HOST_PCT,
    HYSTERESIS_PCT,
    Rule,
    limit_of,
    rules,
)
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol.readings import HostReading
from gpudash.protocol.training import Phase
from gpudash.snapshot import Marker, RankRow, Snapshot
from tests.diagnosis.trainings import (
    CPU,
    GPU,
    ask,
    behind,
    changed,
    cpu_step,
    deepened,
    evaluating,
    gpu_step,
    launching,
    measured,
    profiled,
    read,
    starved,
)
from tests.tui.fake_engine import PHASES
from workloads.standard_levers import PROCESSES

# ── rules ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "threshold", "of"),
    [
        ("cores", CORE_WAIT_WARNS_PCT, lambda pct: measured(core_wait_pct=pct)),
        ("data", DATA_PCT, lambda pct: measured(data_ms=pct / 10)),
        ("host", HOST_PCT, lambda pct: measured(host_ms=pct / 10)),
        ("gpu", DEVICE_PCT, lambda pct: measured(device_ms=pct / 10)),
        ("cpu", CPU_PCT, lambda pct: measured(device=CPU, device_ms=pct / 10)),
    ],
)
def test_a_rule_matches_from_its_threshold_on(kind, threshold, of):
    assert ask(of(threshold)).kind == kind
    assert ask(of(threshold - 0.1)).kind == "none"


@pytest.mark.parametrize(
    ("kind", "threshold", "of"),
    [
        ("data", DATA_PCT, lambda pct: measured(data_ms=pct / 10)),
        ("gpu", DEVICE_PCT, lambda pct: measured(device_ms=pct / 10)),
    ],
)
def test_an_answer_holds_a_little_below_its_threshold(kind, threshold, of):
    before = ask(of(threshold))
    held, dropped = of(threshold - HYSTERESIS_PCT), of(threshold - HYSTERESIS_PCT - 0.1)
    assert ask(held, before).kind == kind
    assert ask(dropped, before).kind == "none"
    assert ask(held, ask(dropped)).kind == "none"


@given(st.lists(st.floats(88.2, 91.8), min_size=1, max_size=20))
def test_a_value_that_swings_within_the_hysteresis_changes_the_answer_once_at_most(values):
    kinds, before = [], None
    for pct in values:
        before = ask(measured(device_ms=pct / 10), before)
        kinds.append(before.kind)
    assert sum(a != b for a, b in itertools.pairwise(kinds)) <= 1


def test_the_first_rule_that_matches_wins():
    everything = {"data_ms": 5.0, "host_ms": 10.0, "device_ms": 5.0}
    assert ask(measured(core_wait_pct=50.0, **everything)).kind == "cores"
    assert ask(measured(**everything)).kind == "data"
    assert ask(measured(host_ms=10.0, device_ms=10.0)).kind == "host"


def test_a_wait_for_data_that_cores_cannot_explain_comes_before_other_jobs():
    assert ask(starved(60.0)).kind == "data"
    assert ask(starved(60.1)).kind == "cores"
    assert ask(starved(61.0), ask(starved(60.0))).kind == "data"
    assert ask(starved(61.0), ask(starved(65.0))).kind == "cores"


def test_a_wait_for_data_that_cores_may_explain_names_both_and_has_levers():
    for core_wait_pct in (40.0, 65.0):
        found = ask(starved(core_wait_pct))
        said = "; ".join(found.evidence)
        assert f"waits for a core {core_wait_pct:.0f} % of the time" in said
        assert "7.00 of 10.0 ms" in said
        assert [one.lever for one in found.tries][:1] == ["num_workers"]
        assert found.tries[0].gain.label.startswith("up to")  # workers want cores too
    assert not ask(starved(65.0, data_ms=0.5)).tries


def test_one_rule_alone_is_marked_as_the_limit():
    snapshot = starved(40.0)
    lines = why_lines(ask(snapshot))
    assert sum(line.startswith("▸") for line in lines) == 1


@pytest.mark.parametrize(
    ("snapshot", "label"),
    [
        (measured(core_wait_pct=10.0, data_ms=1.5), "the step waits for data"),
        (launching(), "the host is busy with a step"),
        (measured(host_ms=9.9), "the host is busy with a step"),
    ],
)
def test_the_rule_that_matches_is_marked_as_the_limit(snapshot, label):
    (marked,) = [line for line in why_lines(ask(snapshot)) if line.startswith("▸")]
    assert marked.startswith(f"▸ {label}")


def rule_lines(found):
    """The lines of `e` about rules, by label; a reason is in the line after its rule."""
    lines = why_lines(found)
    return {
        label.strip(): (line[0], line.partition(label)[2].strip(), after.strip())
        for line, after in itertools.pairwise(lines)
        if "matches from" in line
        for label in (line[2:].rpartition(" %, ")[0].rpartition(" ")[0],)
    }


def test_of_two_rules_of_the_limit_the_one_that_matches_is_marked():
    before = ask(measured(core_wait_pct=5.0, data_ms=1.6))
    said = rule_lines(ask(measured(core_wait_pct=5.0, data_ms=1.4), before))
    assert said["the data wait beyond the core wait"][:2] == (" ", "9 %, matches from 10 %")
    assert said["the step waits for data"][:2] == ("▸", "14 %, matches from 10 %: the limit")


def test_a_limit_below_its_threshold_says_down_to_where_it_stands():
    now = measured(core_wait_pct=14.0)
    said = rule_lines(ask(now, ask(measured(core_wait_pct=30.0))))
    assert said["the training waits for a core"] == (
        "▸",
        "14 %, matches from 15 %: the limit",
        "it matched before, and stands down to 13 %",
    )


def test_a_value_is_not_rounded_up_to_a_threshold_that_it_does_not_reach():
    now = measured(data_ms=0.996)
    assert rule_lines(ask(now))["the step waits for data"][1] == "9.9 %, matches from 10 %"
    now = measured(device=CPU, data_ms=4.525, device_ms=4.54)
    said = rule_lines(ask(now))["the step mainly waits for data"]
    assert said[1] == "45.2 %, matches from 45.4 %"


def test_a_rule_without_a_measurement_never_matches():
    found = ask(measured(data_ms=None, host_ms=None, device_ms=None))
    assert (found.kind, found.title) == (
        "unknown",
        "unclear, because no times within a step are measured",
    )
    assert found.tries == ()
    assert Rule("gpu", "", None, 90.0).matches("gpu") is False
    assert limit_of(rules(Snapshot(), recent_step(Snapshot()))) == "unknown"


@pytest.mark.parametrize(
    ("ms", "gpu_util_pct", "value_pct"),
    [
        ({"data_ms": 1.0}, 60.0, 30.0),  # no kernel runs, and no batch is late
        ({"data_ms": None}, 60.0, 40.0),
        ({"data_ms": 0.0}, 60.0, 40.0),
        ({"data_ms": 1.0}, 99.5, 0.0),
        ({"data_ms": 0.0, "host_ms": 7.5}, 60.0, 40.0),
    ],
)
def test_a_busy_host_is_the_limit_by_the_time_without_a_kernel(ms, gpu_util_pct, value_pct):
    step = RecentStep(**{"step_ms": 10.0, "host_ms": 8.0, "device_ms": 6.0} | ms)
    step = changed(step, gpu_util_pct=gpu_util_pct)
    (host,) = [rule for rule in rules(Snapshot(), step) if rule.kind == "host"]
    assert (host.label, host.value_pct) == ("the host is busy, and no kernel runs", value_pct)


def test_a_data_wait_shorter_than_the_core_wait_leaves_nothing_to_explain():
    step = RecentStep(step_ms=10.0, data_ms=1.0, device_ms=2.0, core_wait_pct=60.0)
    (left,) = [
        rule
        for rule in rules(Snapshot(), step)
        if rule.label == "the data wait beyond the core wait"
    ]
    assert left.value_pct == 0.0


def test_a_device_that_was_not_measured_leaves_a_wait_for_data_its_whole_length():
    assert ask(measured(device_ms=None, data_ms=2.0)).kind == "data"


def test_a_host_that_is_ahead_waits_for_data_at_no_cost():
    assert ask(measured(data_ms=4.0, device_ms=9.5)).kind == "gpu"
    assert ask(measured(data_ms=4.0, device_ms=6.0)).evidence[0] == "waits 4.00 of 10.0 ms"


def test_a_share_of_the_step_is_never_more_than_all_of_it():
    assert ask(measured(device_ms=10.4)).evidence[0] == "busy 100 % of 10.0 ms"


def test_the_newest_reading_stands_in_where_no_core_wait_is_kept_over_time():
    host = HostReading(at_s=0.0, values={"core_wait_pct": 48.0})
    found = ask(changed(measured(), host=host))
    assert found.title == "limited by other jobs"
    assert found.evidence[0] == "the training waits for a core 48 % of the time"
    assert found.tries == ()


# ── a rank that the others wait for ─────────────────────────────────────────────────────


WAITS = "the others wait 1.80 ms a step in the all-reduce"


@pytest.mark.parametrize(("slower_pct", "said"), [(9.94, "9.9 %"), (9.95, "10 %"), (10.8, "11 %")])
def test_a_slow_rank_is_slow_by_two_digits(slower_pct, said):
    assert ask(behind(slower_pct=slower_pct)).evidence[0] == f"rank 5 is {said} slow in backward"


def test_a_slow_rank_is_the_limit_with_its_phase_the_wait_and_why():
    found = ask(behind(why="power cap on GPU 5"))
    assert (found.kind, found.title, found.tries) == ("straggler", "limited by rank 5", ())
    assert found.evidence == (
        "rank 5 is 11 % slow in backward",
        WAITS,
        "power cap on GPU 5",
        "no lever changes that",
    )


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("data", "rank 5 is 11 % slow in its data loading"),
        ("host", "rank 5 is 11 % slow on the host"),
        ("", "rank 5 is 11 % slow"),
        ("their own\x1b", "rank 5 is 11 % slow in their own␛"),
    ],
)
def test_a_slow_rank_is_slow_in_something(phase, said):
    assert ask(behind(phase=phase)).evidence[0] == said


def test_a_slow_rank_that_changes_is_not_the_one_that_is_named():
    found = ask(behind(kind="wandering"))
    assert found.title == "limited by one rank after another"
    assert found.evidence == (
        "the slow rank changes",
        WAITS,
        "the newest is rank 5, 11 % slow in backward",
    )


def test_a_rank_with_more_work_is_not_called_slow():
    found = ask(behind(kind="imbalance", phase="", why="another rank in each step"))
    assert found.title == "limited by unequal batches"
    assert found.evidence[:3] == ("rank 5 has more to work on", WAITS, "another rank in each step")


def test_a_hidden_delay_is_mentioned_beside_the_limit():
    found = ask(behind(phase="data", excess_ms=10.0, others_wait_ms=None))
    assert (found.kind, found.title) == ("gpu", "GPU-bound")
    assert found.evidence[-1] == "rank 5 waits 10.0 ms longer for data; hidden so far: nobody waits"
    found = ask(behind(phase="host", excess_ms=2.0, others_wait_ms=None))
    assert found.evidence[-1] == (
        "the host of rank 5 is busy 2.00 ms longer; hidden so far: nobody waits"
    )


def test_a_longer_wait_of_all_ranks_for_data_comes_before_a_slow_rank():
    waiting = behind(measured(data_ms=4.0), others_wait_ms=1.9)
    assert ask(waiting).kind == "data"
    assert ask(waiting).evidence[-1] == "the others wait 1.90 ms a step for rank 5"
    assert ask(behind(measured(data_ms=4.0), others_wait_ms=2.0)).kind == "straggler"
    assert ask(behind(measured(data_ms=None), others_wait_ms=0.4)).kind == "straggler"


def test_the_larger_of_core_wait_and_slow_rank_is_the_limit():
    assert ask(behind(measured(core_wait_pct=50.0))).kind == "cores"
    assert ask(behind(measured(core_wait_pct=50.0), others_wait_ms=6.0)).kind == "straggler"


RANKS = (RankRow(rank=0), RankRow(rank=1))


def test_ranks_may_take_the_cores_from_each_other():
    found = ask(changed(measured(core_wait_pct=50.0), ranks=RANKS))
    assert found.title == "short of cores"
    assert found.evidence == (
        "rank 0 waits for a core 50 % of the time",
        "other ranks or other jobs have it",
        "rank 0 uses 1.3 of 8 cores",
        "no lever adds cores",
    )


def test_a_single_rank_is_called_the_training():
    alone = (RankRow(rank=0),)
    for snapshot in (measured(core_wait_pct=50.0), gpu_step()):
        assert ask(changed(snapshot, ranks=alone)) == ask(snapshot)


# ── communication, without a profile ────────────────────────────────────────────────────


EXCHANGED = Phase(name="communication", label="communication", lane="train")


def exchanging(ms, **changes):
    snapshot = measured(device_ms=9.9, communication_ms=ms, **changes)
    return changed(snapshot, ranks=RANKS, phases=(*PHASES, EXCHANGED))


@pytest.mark.parametrize("device", [CPU, GPU])
def test_a_step_that_only_waits_for_gradients_is_communication_bound(device):
    found = ask(exchanging(4.5, device=device))
    assert found.title == "communication-bound"
    assert found.evidence[0] == "only communicates 4.50 of 10.0 ms"
    assert [one.lever for one in found.tries][-1] == "batch_size"


def test_against_communication_two_streams_are_tried_before_gradients_are_rounded():
    of_several = {one.name: one.default_text for one in PROCESSES}
    times_ms = {"prepare_ms": 2.0, "forward_ms": 3.0}

    def tried(**changes):
        snapshot = exchanging(1.2, **times_ms, **changes)
        return ask(changed(snapshot, settings={**snapshot.settings, **of_several})).tries

    found = [one.promise for one in tried()]
    assert found[:2] == [
        "pipelined off → on: up to +25 %",
        "gradient_compression none → bf16: up to +6 %",
    ]
    assert not {"pipelined", "gradient_compression"} & {one.lever for one in tried(device=CPU)}


def test_little_communication_is_no_limit_and_no_work():
    found = ask(exchanging(0.5))
    assert found.title == "GPU-bound"
    assert found.evidence[0] == "busy 94 % of 10.0 ms"
    assert not any("counts as work" in one for one in found.evidence)


def test_an_unclear_step_lists_computing_communication_and_rest():
    snapshot = exchanging(0.9, device=CPU, data_ms=0.0)
    host = HostReading(at_s=0.0, values={"cpu_pct": 30.0})
    snapshot = changed(snapshot, host=host)
    found = ask(snapshot)
    assert found.kind == "none"
    said = ("computing 30 %", "communication 9 %", "data 0 %", "unattributed 61 %")
    assert found.evidence == said
    computes = next(line for line in why_lines(found) if "the CPU computes" in line)
    assert "30 %" in computes


def test_the_rule_of_a_slow_rank_is_among_the_reasons():
    snapshot = behind()
    lines = why_lines(ask(snapshot))
    assert any(line.startswith("▸ the others wait for a rank") and "18 %" in line for line in lines)
    plain = measured()
    assert not any("for a rank" in line for line in why_lines(ask(plain)))


# ── the GPU's own readings ────────────────────────────────────────────────────


def test_bandwidth_as_busy_as_the_tensor_cores_is_the_limit():
    even = {"sm_active_pct": 99.0, "dram_active_pct": 70.0, "tensor_active_pct": 70.0}
    assert ask(read(measured(), **even)).kind == "memory"


@pytest.mark.parametrize(
    ("kind", "readings", "ms"),
    [
        ("compute", {"sm_active_pct": 96.0, "dram_active_pct": 3.0}, {}),
        ("compute", {"sm_active_pct": 96.0}, {"host_ms": 10.0}),  # the launch queue is full
        ("gpu", {"sm_active_pct": 40.0}, {"device_ms": 9.5}),
        ("memory", {"sm_active_pct": 99.0, "dram_active_pct": 85.0}, {}),
        (
            "compute",
            {"sm_active_pct": 99.0, "dram_active_pct": 70.0, "tensor_active_pct": 80.0},
            {},
        ),
        ("host", {"gpu_util_pct": 85.0}, {"host_ms": 8.0, "device_ms": 9.9}),
        ("gpu", {"gpu_util_pct": 99.0}, {"host_ms": 8.0, "device_ms": 9.9}),
        ("copy", {"gpu_util_pct": 50.0}, {"copy_ms": 2.0}),
        # events hold the gaps between kernels too
        ("none", {"gpu_util_pct": 85.0}, {"device_ms": 9.9, "host_ms": 7.0}),
        ("gpu", {"gpu_util_pct": 85.0}, {"device_ms": 9.9, "host_ms": 7.0, "copy_ms": 1.0}),
        ("none", {}, {"copy_ms": 1.9}),
        ("none", {}, {"copy_ms": 2.5, "overlap_ms": 2.4}),
    ],
)
def test_readings_over_the_same_seconds_show_what_the_gpu_is_busy_with(kind, readings, ms):
    assert ask(read(measured(**ms), **readings)).kind == kind


def test_bandwidth_that_the_tensor_cores_beat_is_shown_with_its_value_and_is_no_limit():
    busy = {"sm_active_pct": 99.0, "dram_active_pct": 70.0, "tensor_active_pct": 80.0}
    snapshot = read(measured(), **busy)
    lines = why_lines(ask(snapshot))
    (bandwidth,) = [line for line in lines if "bandwidth" in line]
    assert bandwidth.endswith("70 %, matches from 60 %; the tensor cores are busier")


@pytest.mark.parametrize(("cpu_pct", "kind"), [(44.0, "none"), (55.0, "cpu"), (180.0, "cpu")])
def test_a_cpu_computes_no_longer_than_the_training_asked_for_a_core(cpu_pct, kind):
    host = HostReading(at_s=0.0, values={"cpu_pct": cpu_pct - 10, "core_wait_pct": 10.0})
    assert ask(changed(cpu_step(), host=host)).kind == kind


def test_where_ranks_train_together_communication_is_said_to_count_as_work():
    ranks = (RankRow(rank=0), RankRow(rank=1))
    alone, together = gpu_step(), changed(gpu_step(), ranks=ranks, can=("profile", "blocks"))
    said = "communication counts as work; t profiles some steps and tells"
    assert said in ask(together).evidence
    assert said not in ask(alone).evidence
    assert said not in deepened(together, profiled(busy_ms=9.9)).evidence


EXCHANGE = (*PHASES, Phase(name="communication", label="communication", lane="train"))


def test_exposed_communication_is_a_limit_without_a_profile_too():
    found = ask(changed(measured(device_ms=9.9, communication_ms=2.0), phases=EXCHANGE))
    assert found.title == "communication-bound"
    assert found.evidence[0] == "only communicates 2.00 of 10.0 ms"


def test_ranks_on_cpus_can_be_communication_bound_too():
    slow = measured(device=CPU, device_ms=9.9, communication_ms=2.0)
    assert ask(changed(slow, phases=EXCHANGE)).title == "communication-bound"


def test_half_the_bytes_gain_half_of_the_exposed_communication_at_most():
    step = RecentStep(step_ms=10.0, phases_ms={"communication": 2.0})
    found = gain_of("gradient_compression", Case(a="none", b="bf16", step=step))
    assert found is not None
    assert (found.low_pct, round(found.high_pct, 1)) == (None, 11.1)


def test_a_clock_held_far_below_the_highest_seen_is_the_limit():
    clocks = (1980.0,) * 10 + (990.0,) * 10
    snapshot = read(measured(device_ms=9.9), "hw_thermal_slowdown+sw_power_cap")
    slow = changed(
        snapshot,
        series=changed(snapshot.series, values=snapshot.series.values | {"sm_clock_mhz": clocks}),
    )
    slow = changed(slow, markers=(Marker(at_s=5.0, label="batch_size=16"),))
    assert ask(slow).title == "throttled"
    assert ask(slow).evidence[:2] == (
        "990 of 1,980 MHz",
        "held down by hw_thermal_slowdown, sw_power_cap",
    )
    nothing_holds = changed(slow, gpu=changed(slow.gpu, values={"throttle": "none"}))
    assert ask(nothing_holds).kind == "gpu"


def test_a_training_that_mostly_evaluates_is_limited_by_that():
    found = ask(evaluating(0.6))
    assert (found.kind, found.title) == ("asides", "paused")
    assert found.evidence == ("evaluation and checkpoints take 60 % of the time",)
    again = changed(evaluating(0.6), markers=evaluating(0.6).markers * 4)
    assert ask(again).evidence[1:] == ("without them +82 to +300 %",)
    assert ask(evaluating(0.4)).kind == "none"
    assert ask(changed(evaluating(0.6), markers=())).kind == "none"  # never seen to evaluate
    assert ask(evaluating(0.6, mark_s=-60.0)).kind == "none"


def test_the_share_of_evaluation_is_taken_since_the_last_break():
    snapshot = evaluating(0.6)
    change = Marker(at_s=3.0, label="batch_size=16")
    assert recent_step(changed(snapshot, markers=(change, *snapshot.markers))).aside_pct is not None
    late = (Marker(at_s=25.0, label="batch_size=16"), Marker(at_s=26.0, label="evaluation"))
    step = recent_step(changed(snapshot, markers=late))
    assert (step.aside_pct, step.asides) == (None, 1)  # 5 s are too few
    assert recent_step(evaluating(0.6, mark_s=0.0)).asides == 1
    assert (recent_step(measured()).aside_pct, recent_step(measured()).asides) == (None, 0)


def test_only_the_ticks_since_the_break_count_and_those_without_a_step_time_as_evaluation():
    snapshot = evaluating(0.6)
    values = snapshot.series.values
    late = (Marker(at_s=20.0, label="batch_size=16"), Marker(at_s=21.0, label="evaluation"))
    trained = {"steps_per_s": (100.0,) * 40 + (40.0,) * 20}  # 20 s before the break
    unknown = {"step_ms": (10.0, None) * 30}
    for changes, aside_pct in ((trained, 60.0), (trained | unknown, 80.0)):
        series = changed(snapshot.series, values=values | changes)
        step = recent_step(changed(snapshot, series=series, markers=late))
        assert step.aside_pct == pytest.approx(aside_pct)


def test_the_time_of_a_profile_is_none_of_evaluation():
    snapshot = evaluating(0.45)
    rates = tuple(0.0 if 20 <= tick < 40 else 55.0 for tick in range(60))
    series = changed(snapshot.series, values=snapshot.series.values | {"steps_per_s": rates})
    profile = Marker(at_s=10.0, label="profile", lasts_s=10.0)
    snapshot = changed(snapshot, series=series, markers=(*snapshot.markers, profile))
    assert recent_step(snapshot).aside_pct == pytest.approx(45.0)
    assert ask(snapshot).kind == "none"
