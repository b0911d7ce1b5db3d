"""What limits the training: each rule, its threshold, its evidence and what to try."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpudash.metrics import CORE_WAIT_WARNS_PCT, METRICS
from gpudash.protocol import (
    ComparisonShown,
    Device,
    GpuReading,
    HostReading,
    Phase,
    Pinning,
    Profiled,
    Straggler,
)
from gpudash.snapshot import (
    Hang,
    Marker,
    RankRow,
    RankStack,
    Series,
    Snapshot,
)
from gpudash.trace.summary import CopyUse, Summary, SyncUse
from gpudash.views.answer import HOLD_S, Answers, answer
from gpudash.views.evidence import Measured, evidence_of
from gpudash.views.gains import Case, gain_of
from gpudash.views.lanes import Part, lane, lanes_of, look
from gpudash.views.recent_step import (
    MEASURED_STEPS,
    RecentStep,
    recent_step,
    steps_needed,
)
from gpudash.views.remedies import loader_workers
from gpudash.views.rules import (
    DATA_PCT,
    DEVICE_PCT,
    HOST_PCT,
    HYSTERESIS_PCT,
    LOADER_PCT,
    Rule,
    limit_of,
    rules,
    waiting_levers,
)
from gpudash.views.settings_history import WARMUP_STEPS
from gpudash.views.why import why_lines
from tests.tui.fake_engine import PHASES, result
from workloads import CATALOGUE
from workloads.levers import resolve
from workloads.standard_levers import PROCESSES

changed = msgspec.structs.replace
GPU = Device(kind="cuda", name="NVIDIA H200")
CPU = Device(kind="cpu", name="AMD EPYC")


def settings(workload="encdec", **changes):
    return resolve(CATALOGUE[workload].levers, {"num_workers": "4", **changes})


def measured(workload="encdec", *, device=GPU, chosen=None, core_wait_pct=None, ticks=20, **ms):
    """A training of 10 ms a step: the GPU works for 6 of it, the host for 3, unless `ms` differ."""
    times = {"step_ms": 10.0, "data_ms": 0.0, "host_ms": 3.0, "device_ms": 6.0, **ms}
    values = {name: (value,) * ticks for name, value in times.items() if value is not None}
    values["steps_per_s"] = (1000 / times["step_ms"],) * ticks
    values |= {} if core_wait_pct is None else {"core_wait_pct": (core_wait_pct,) * ticks}
    return Snapshot(
        state="training",
        workload=workload,
        device=device,
        settings=settings(workload, **(chosen or {})),
        total_steps=5000,
        steps_since_break=5000,
        step_ms_p50=times["step_ms"],
        phases=PHASES,
        host=HostReading(at_s=0.0, values={"cpu_pct": 130.0}),
        series=Series(at_s=tuple(0.5 * (tick + 1) for tick in range(ticks)), values=values),
    )


def gpu_step(**changes):
    """One stream, never idle."""
    return measured(
        device_ms=9.9, prepare_ms=3.4, forward_ms=2.0, backward_ms=4.3, optimizer_ms=0.2, **changes
    )


def two_streams():
    """The mock-up's: encdec at batch 32 on an H200."""
    return measured(
        chosen={"pipelined": "on"},
        step_ms=6.83,
        host_ms=2.61,
        device_ms=6.83,
        overlap_ms=5.58,
        prepare_ms=5.58,
        forward_ms=2.72,
        backward_ms=3.95,
        optimizer_ms=0.16,
    )


def cpu_step():
    return measured(
        device=CPU,
        chosen={"precision": "fp32"},
        step_ms=320.0,
        host_ms=315.0,
        data_ms=5.0,
        device_ms=313.0,
        prepare_ms=112.0,
        forward_ms=47.0,
        backward_ms=149.0,
        optimizer_ms=5.0,
    )


def launching():
    """encdec at batch 8 with bf16, resident: the host was busy for the whole step."""
    return measured(
        chosen={"data": "resident"}, step_ms=3.14, host_ms=3.14, device_ms=3.1, forward_ms=1.2
    )


def ask(snapshot, before=None, cores=8):
    entry = CATALOGUE.get(snapshot.workload)
    return answer(snapshot, entry.levers if entry else (), before, cores)


def tried(snapshot):
    return [one.label for one in ask(snapshot).tries]


# ── rules ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "threshold", "of"),
    [
        ("cores", CORE_WAIT_WARNS_PCT, lambda pct: measured(core_wait_pct=pct)),
        ("data", DATA_PCT, lambda pct: measured(data_ms=pct / 10)),
        ("host", HOST_PCT, lambda pct: measured(host_ms=pct / 10)),
        ("gpu", DEVICE_PCT, lambda pct: measured(device_ms=pct / 10)),
        ("cpu", DEVICE_PCT, lambda pct: measured(device=CPU, device_ms=pct / 10)),
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


def starved(core_wait_pct, data_ms=7.0):
    """A training that waits for data and for cores."""
    return measured(core_wait_pct=core_wait_pct, data_ms=data_ms, host_ms=1.0, device_ms=2.0)


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
    lines = why_lines(ask(snapshot), snapshot)
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
    (marked,) = [line for line in why_lines(ask(snapshot), snapshot) if line.startswith("▸")]
    assert marked.startswith(f"▸ {label}")


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


def behind(snapshot=None, **changes):
    values = {"rank": 5, "phase": "backward", "excess_ms": 1.1, "slower_pct": 11.0}
    straggler = Straggler(**{**values, "others_wait_ms": 1.8, **changes})
    return changed(snapshot or measured(device_ms=9.9), straggler=straggler)


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
    levers = (*CATALOGUE["encdec"].levers, *PROCESSES)
    times_ms = {"prepare_ms": 2.0, "forward_ms": 3.0}
    found = [one.promise for one in answer(exchanging(1.2, **times_ms), levers).tries]
    assert found[:2] == [
        "pipelined off → on: up to +25 %",
        "gradient_compression none → bf16: up to +6 %",
    ]
    without_streams = answer(exchanging(1.2, **times_ms, device=CPU), levers).tries
    assert not {"pipelined", "gradient_compression"} & {one.lever for one in without_streams}


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
    computes = next(line for line in why_lines(found, snapshot) if "the CPU computes" in line)
    assert "30 %" in computes


def test_the_rule_of_a_slow_rank_is_among_the_reasons():
    snapshot = behind()
    lines = why_lines(ask(snapshot), snapshot)
    assert any(line.startswith("▸ the others wait for a rank") and "18 %" in line for line in lines)
    plain = measured()
    assert not any("for a rank" in line for line in why_lines(ask(plain), plain))


# ── evidence ────────────────────────────────────────────────────────────────────────


def test_a_limit_is_named_with_its_evidence():
    found = ask(two_streams())
    assert found.title == "GPU-bound"
    assert found.evidence == (
        "busy 100 % of 6.83 ms",
        "encode runs beside training 82 % of it",
        "the host is 4.22 ms ahead",
    )
    assert ask(gpu_step()).evidence[0] == "busy 99 % of 10.0 ms"
    waiting = ask(measured(core_wait_pct=50.0))
    assert waiting.evidence[0] == "the training waits for a core 50 % of the time"
    assert waiting.evidence[-2:] == ("no lever adds cores", "with every core up to +515 %")
    assert not waiting.tries
    late = ask(measured(core_wait_pct=50.0, data_ms=4.0, device_ms=6.0))
    assert late.evidence[-2] == "besides, it waits for data 4.00 of 10.0 ms"
    late = ask(measured(core_wait_pct=50.0, data_ms=DATA_PCT / 10))
    assert late.evidence[-2] == "besides, it waits for data 1.00 of 10.0 ms"
    assert late.tries
    assert ask(cpu_step(), cores=2).evidence == (
        "computing 98 % of 320 ms",
        "the training uses 1.3 of 2 cores",
    )
    assert ask(measured()).evidence == ("GPU 60 %", "host 30 %", "data 0 %", "unattributed 40 %")
    assert ask(measured(device_ms=0.0)).evidence[-1] == "unattributed 100 %"
    cores = HostReading(at_s=0.0, values={"cpu_pct": 1000.0})
    assert ask(changed(cpu_step(), host=cores), cores=16).evidence[-1] == (
        "the training uses 10.0 of 16 cores"
    )


@pytest.mark.parametrize(
    ("ms", "ahead"),
    [
        ({"host_ms": 5.0, "data_ms": 1.0}, "the host is 4.00 ms ahead"),
        ({"host_ms": 5.0, "data_ms": None}, "the host is 5.00 ms ahead"),
        ({"host_ms": 8.9, "data_ms": 2.0}, "the host is 0.00 ms ahead"),
    ],
)
def test_the_host_is_ahead_by_what_it_neither_works_nor_waits_for_data(ms, ahead):
    assert ask(measured(device_ms=9.9, **ms)).evidence[-1] == ahead


def said_on_a_cpu(limit, loader_cores):
    """What is said of 10 ms on cores that do not suffice; of the step 2 ms are a wait for data."""
    step = RecentStep(
        step_ms=10.0,
        data_ms=2.0,
        device_ms=5.0,
        on_gpu=False,
        core_wait_pct=20.0,
        busy_cores=1.0,
        loader_cores=loader_cores,
        cores=2,
    )
    return evidence_of(limit, Measured(measured(device=CPU), step))


@pytest.mark.parametrize("limit", ["cores", "cpu"])
def test_loader_workers_are_named_from_a_tenth_of_the_cpu_time_on(limit):
    assert "loader workers use 10 % of the CPU time" in said_on_a_cpu(limit, 0.1)
    assert not any("loader workers" in one for one in said_on_a_cpu(limit, 0.099))


@pytest.mark.parametrize(("loader_cores", "is_first"), [(0.15, False), (0.2, False), (0.21, True)])
def test_the_larger_of_data_wait_and_loader_workers_is_said_first(loader_cores, is_first):
    first, second, *_ = said_on_a_cpu("data", loader_cores)
    assert (first.startswith("loader workers"), second.startswith("waits")) == (is_first, is_first)


def test_without_the_hosts_time_nothing_is_said_of_it():
    assert ask(measured(device_ms=9.9, host_ms=None)).evidence == ("busy 99 % of 10.0 ms",)


def test_an_input_bound_training_names_its_core_wait_from_where_that_warns():
    def said(core_wait_pct):
        waiting = measured(core_wait_pct=core_wait_pct, data_ms=7.0, host_ms=1.0, device_ms=2.0)
        return any("waits for a core" in one for one in ask(waiting).evidence)

    assert (said(CORE_WAIT_WARNS_PCT), said(CORE_WAIT_WARNS_PCT - 0.1)) == (True, False)


def test_an_input_bound_training_names_the_slowest_transform():
    slow = changed(measured(data_ms=3.0), transform_ms={"crop": 1.0, "decode": 11.0})
    assert "slowest transform: decode, 11.0 ms a sample" in ask(slow).evidence


def test_a_busy_host_launches_or_waits_as_its_settings_show():
    assert ask(launching()).title == "launch-bound"
    loss = measured("masked_loss", chosen={"data": "resident"}, host_ms=9.9, device_ms=9.9)
    assert ask(loss).title == "sync-bound"
    assert "loss=nonzero can make it wait" in ask(loss).evidence[1]
    assert ask(changed(launching(), workload="train.py")).title == "launch- or sync-bound"
    assert ask(measured(host_ms=9.9)).title == "launch- or sync-bound"  # memory is not pinned


def test_a_busy_hosts_evidence_has_the_time_in_which_a_kernel_runs():
    busy = read(measured(host_ms=8.0, device_ms=9.9), gpu_util_pct=85.0)
    assert "a kernel runs 85 % of the time" in ask(busy).evidence
    assert not any("a kernel runs" in one for one in ask(measured(host_ms=9.9)).evidence)


@pytest.mark.parametrize(
    ("chosen", "waiting"),
    [
        ({"rotation": "per_image", "augment_on": "gpu"}, True),
        ({"rotation": "per_image", "augment_on": "cpu"}, False),
        ({"rotation": "batched", "augment_on": "gpu"}, False),
    ],
)
def test_images_rotated_one_by_one_on_the_gpu_make_the_host_wait(chosen, waiting):
    assert ("rotation" in waiting_levers(chosen)) == waiting


def test_what_only_a_profile_shows_names_its_key():
    own = changed(launching(), workload="train.py")
    asks = "t profiles some steps and tells"
    assert asks not in ask(own).evidence
    assert asks in ask(changed(own, can=(*own.can, "profile"))).evidence


def test_why_shows_each_value_beside_its_threshold():
    lines = why_lines(ask(gpu_step()), gpu_step(), 8)
    assert lines[0] == ask(gpu_step()).evidence[0]
    assert "GPU-bound" not in "".join(lines)  # that is the title above them
    asked = [line for line in lines if "matches from" in line]
    assert [line[0] for line in asked] == [" "] * (len(asked) - 1) + ["▸"]
    assert asked[-1].endswith("99 %, matches from 90 %: the limit")
    assert any(line.endswith("–, not measured") for line in lines)


@pytest.mark.parametrize("snapshot", [gpu_step(), measured(device=CPU, core_wait_pct=30.0)])
def test_why_breaks_no_line_in_80_columns(snapshot):
    lines = why_lines(ask(snapshot), snapshot, 8)
    assert [line for line in lines if cell_len(line) > 80 - 4] == []


def test_why_names_no_answer_before_there_is_one():
    early = changed(gpu_step(), steps_since_break=12)
    assert not any(line.endswith("is the answer") for line in why_lines(ask(early), early, 8))
    lines = why_lines(ask(gpu_step()), gpu_step(), 8)
    assert any(line.endswith("is the answer") for line in lines)


# ── the GPU's own readings ────────────────────────────────────────────────────


def test_bandwidth_as_busy_as_the_tensor_cores_is_the_limit():
    even = {"sm_active_pct": 99.0, "dram_active_pct": 70.0, "tensor_active_pct": 70.0}
    assert ask(read(measured(), **even)).kind == "memory"


def read(snapshot, throttle="none", **values):
    """The snapshot with these readings of the GPU in each tick."""
    series = snapshot.series
    kept = {name: (value,) * len(series.at_s) for name, value in values.items()}
    reading = GpuReading(at_s=0.0, index=0, uuid="", name="", values={"throttle": throttle})
    return changed(snapshot, gpu=reading, series=changed(series, values=series.values | kept))


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
    lines = why_lines(ask(snapshot), snapshot, 8)
    (bandwidth,) = [line for line in lines if "bandwidth" in line]
    assert bandwidth.endswith("70 %, matches from 60 %; the tensor cores are busier")


@pytest.mark.parametrize(("cpu_pct", "kind"), [(84.0, "none"), (95.0, "cpu"), (180.0, "cpu")])
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


def evaluating(share, mark_s=4.0):
    """For this share of each 0.5 s the training is in no step."""
    snapshot = measured(ticks=60)
    rates = ((1 - share) * 100.0,) * 60
    values = snapshot.series.values | {"steps_per_s": rates}
    marks = (Marker(at_s=mark_s, label="evaluation"),)
    series = changed(snapshot.series, values=values)
    return changed(snapshot, series=series, markers=marks, elapsed_s=30.0)


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


# ── with a profile ────────────────────────────────────────────────────────────────


COPIES = (CopyUse("to device", is_pinned=False, count=1.0, mib=24.0, ms=2.5, gb_s=10.0),)
WAIT = SyncUse("/home/me/loss.py", 41, "forward", "nonzero", 1.0, 1.9)


def profiled(**values):
    """A step of 10 ms on one stream: the device is at work for 6 ms of it by default."""
    about = {"busy_ms": 6.0, "idle_ms": {"host": 4.0}, "blocked_ms": 0.0, "launches": 500.0}
    return Summary(steps=10, step_ms=10.0, on_device=True, **{**about, "launch_ms": 1.0, **values})


def deepened(snapshot, profile):
    return answer(snapshot, CATALOGUE[snapshot.workload].levers, None, 8, profile)


@pytest.mark.parametrize(
    ("kind", "profile", "ms"),
    [
        ("launch", profiled(), {"host_ms": 10.0}),
        ("launch", profiled(), {"host_ms": 6.0}),
        ("sync", profiled(blocked_ms=4.0), {"host_ms": 10.0}),
        ("launch", profiled(blocked_ms=0.9), {"host_ms": 10.0}),
        ("gpu", profiled(busy_ms=9.8, idle_ms={"host": 0.2}, blocked_ms=9.0), {"host_ms": 10.0}),
        ("communication", profiled(exposed_ms=1.5), {"host_ms": 10.0}),
        ("copy", profiled(copies=COPIES), {"host_ms": 10.0}),
        ("launch", profiled(copies=COPIES), {"host_ms": 10.0, "copy_ms": 1.0}),
        ("launch", profiled(copies=COPIES, overlap_ms=2.5), {"host_ms": 10.0}),
        ("none", profiled(idle_ms={"stream": 4.0}), {"host_ms": 5.0, "device_ms": 9.9}),
        # profiling had made the host slower: the step has no such gap
        ("gpu", profiled(busy_ms=9.5, idle_ms={"host": 3.0}), {"host_ms": 6.0}),
        # idle for want of data is no want of launches
        ("data", profiled(), {"data_ms": 4.0, "host_ms": 5.0}),
    ],
)
def test_a_profile_distinguishes_waiting_from_launching(kind, profile, ms):
    assert deepened(measured(**ms), profile).kind == kind


def pinning(pin_ms):
    """A profile that copies for 2.5 ms; from pinned memory that would be 0.5 ms, plus `pin_ms`."""
    cost = Pinning(pin_ms=99.0, thread_pin_ms=pin_ms, copy_ms=0.5)  # the loader has workers
    traced = Profiled(
        at_s=0, path="", first_step=0, steps=10, steps_ms=100, took_ms=0, pinning=cost
    )
    return profiled(copies=COPIES, profiled=traced)


def test_pinning_that_takes_longer_than_it_saves_is_not_proposed_and_the_answer_says_so():
    copying = measured(chosen={"pin_memory": "off"}, host_ms=10.0)
    why_not = "pinning would take 16.0 ms, longer than that"
    quick, slow = (deepened(copying, pinning(ms)) for ms in (1.0, 16.0))
    assert [found.kind for found in (quick, slow)] == ["copy", "copy"]
    assert quick.tries[0].promise == "pin_memory off → on: +11 to +25 %"
    assert "pin_memory" not in [one.lever for one in slow.tries]
    assert why_not in slow.evidence
    even = deepened(copying, pinning(2.5))  # as long as the copy
    for found in (quick, even):
        assert not any("pinning would take" in one for one in found.evidence)
    able = changed(copying, can=("blocks", "profile"))
    blind = deepened(able, profiled(copies=COPIES)).evidence  # a profile that could not measure it
    assert not any("what pinning would take" in one for one in blind)


def test_before_a_profile_pinning_has_no_range_and_the_answer_asks_for_one():
    asks = "t profiles some steps and tells what pinning would take"
    able = {"can": ("blocks", "profile")}
    unpinned, is_pinned = (
        ask(changed(measured(chosen={"pin_memory": value}, copy_ms=2.5), **able))
        for value in ("off", "on")
    )
    assert unpinned.tries[0].promise == "pin_memory off → on"
    assert (asks in unpinned.evidence, asks in is_pinned.evidence) == (True, False)


def test_pinning_is_not_proposed_where_there_is_next_to_nothing_to_copy():
    unpinned = {"chosen": {"pin_memory": "off"}, "data_ms": 5.0}
    little, much = (ask(measured(**unpinned, copy_ms=ms)) for ms in (0.05, 0.5))
    proposed = [["pin_memory" in one.label for one in found.tries] for found in (little, much)]
    assert [any(each) for each in proposed] == [False, True]


def test_a_profile_without_device_events_changes_nothing():
    blind = Summary(steps=10, step_ms=10.0, on_device=False)
    for snapshot in (cpu_step(), gpu_step(), launching(), measured(data_ms=3.0)):
        assert deepened(snapshot, blind) == ask(snapshot)
        assert why_lines(ask(snapshot), snapshot, 8, blind)


def test_waits_that_a_setting_is_known_for_are_the_limit_although_the_gpu_is_busy():
    loss = measured("masked_loss", chosen={"data": "resident"}, host_ms=9.9, device_ms=9.9)
    busy = profiled(busy_ms=9.94, idle_ms={"host": 0.06}, blocked_ms=9.0, syncs=(WAIT,))
    assert deepened(loss, busy).kind == "sync"
    assert deepened(loss, busy).tries[0].label == "loss=minmax"


def test_a_wait_is_shown_with_its_line_and_the_gain_without_waits():
    waiting = profiled(blocked_ms=2.0, syncs=(WAIT, SyncUse("", 0, "", "aten::item", 1.0, 0.1)))
    found = deepened(measured(host_ms=10.0), waiting)
    assert found.evidence == (
        "waits 1.90 of 10.0 ms at me/loss.py:41 nonzero",
        "without its waits up to +25 %",
        "0.10 ms in aten::item",
    )
    lines = why_lines(found, measured(host_ms=10.0), 8, waiting)
    assert "  waits 1.90 ms at me/loss.py:41 nonzero" in lines


def test_a_launch_bound_step_shows_its_idle_time_and_its_launches():
    found = deepened(measured(host_ms=10.0), profiled())
    said = ("no work launched 4.00 of 10.0 ms", "500 launches take 1.00 ms")
    assert found.evidence == said
    lines = why_lines(found, measured(host_ms=10.0), 8, profiled(copies=COPIES))
    assert "  device busy 6.00 ms; idle for host 4.00 ms; 500 launches" in lines
    assert "  copies 24.0 MiB to device in 2.50 ms at 10.0 GB/s not pinned" in lines
    assert deepened(measured(host_ms=10.0), profiled(launches=None)).evidence == said[:1]


def test_a_busy_gpus_evidence_has_its_share_of_the_peak_flops():
    busy = profiled(busy_ms=9.9, idle_ms={}, mfu_pct=41.0)
    assert "MFU 41 %" in deepened(measured(), busy).evidence


def test_why_shows_a_try_with_its_reason_and_where_its_gain_is_from():
    snapshot = measured("jpeg_input", data_ms=3.0)
    found = ask(snapshot)
    lines = why_lines(found, snapshot, 8)
    first = next(index for index, line in enumerate(lines) if line.startswith("try num_workers"))
    assert lines[first] == "try num_workers 4 → 8: about +43 %; more batches are made at a time"
    assert lines[first + 1].startswith("  about +43 %: a worker makes a batch in 40.0 ms")
    (plain,) = [line for line in lines if line.startswith("try pin_memory")]
    assert plain == "try pin_memory off → on: the copy runs beside the host"


def test_while_steps_are_profiled_the_answer_from_before_is_shown():
    found = ask(changed(gpu_step(), profiling=True), ask(gpu_step()))
    assert (found.kind, found.evidence[0]) == ("profiling", "before that: GPU-bound")


# ── when there is no answer ────────────────────────────────────────────────────────────


def test_until_enough_steps_are_measured_it_counts_them_towards_a_goal_that_stays():
    found = ask(changed(gpu_step(), steps_since_break=12))
    assert (found.kind, found.title) == ("measuring", "measuring … 12 of at most 20 steps")
    assert found.evidence[0] == f"slow steps need fewer; the first {WARMUP_STEPS} are warm-up"
    assert found.tries == ()


def test_steps_of_100_ms_are_measured_until_20_of_them():
    slow = measured(step_ms=100.0, host_ms=30.0, device_ms=99.0)
    kinds = [ask(changed(slow, steps_since_break=steps)).kind for steps in (15, 19, 20)]
    assert kinds == ["measuring", "measuring", "gpu"]
    assert ask(changed(slow, steps_since_break=15, state="finished")).limit == "gpu"


def test_while_it_measures_it_shows_its_row_and_the_result_before():
    early = changed(gpu_step(), steps_since_break=12)
    rows = (
        result(1, "batch_size=4", 100.0),
        result(2, "batch_size=8", 250.0),
        result(3, "an A/B", 1.0, verdict="no difference"),
        result(4, "batch_size=16", 1.0, live=True),
    )
    newest, before = (
        "row 4: batch_size=16",
        "row 2 before it: 2,000 samples/s, step p50 4.00 ms",
    )
    assert ask(changed(early, results=rows)).evidence[1:] == (newest, before)
    assert ask(changed(early, results=rows[-1:])).evidence[1:] == (newest,)
    other = (changed(rows[1], workload="augment"), rows[-1])
    assert ask(changed(early, results=other)).evidence[1:] == (newest,)
    for none_live in ((), rows[:2], rows[:3]):
        assert len(ask(changed(early, results=none_live)).evidence) == 1


def test_a_training_that_failed_says_why():
    why = "ValueError: a batch: too small – at step 3"
    failed = Snapshot(state="failed", status=why, total_steps=3)
    assert ask(failed).evidence == ("ValueError", "a batch: too small")
    assert ask(changed(failed, state="finished")).evidence == ()


def test_a_script_that_ends_without_a_step_says_so():
    said = "no training step was seen"
    script = Snapshot(state="finished", can=("leave",))
    assert ask(script).evidence == (said,)
    assert ask(changed(script, total_steps=3)).evidence == ()
    assert ask(changed(script, can=("levers",))).evidence == ()


def test_once_there_are_enough_steps_the_answer_waits_for_half_a_second():
    blind = changed(gpu_step(), steps_since_break=96, series=Snapshot().series)
    assert ask(blind).title == "measuring the first half second …"


def test_slow_steps_need_fewer():
    assert steps_needed(None) == steps_needed(5.0) == MEASURED_STEPS
    assert steps_needed(1000.0) == 10
    assert steps_needed(60_000.0) == 8


def test_means_leave_out_the_time_before_the_last_change():
    before, after = (3.0,) * 18, (9.5,) * 2
    snapshot = changed(measured(), markers=(Marker(at_s=9.0, label="batch_size=16"),))
    values = snapshot.series.values | {"device_ms": before + after}
    snapshot = changed(snapshot, series=changed(snapshot.series, values=values))
    assert recent_step(snapshot).device_ms == pytest.approx(9.5)
    assert recent_step(snapshot).steps == 100
    assert recent_step(changed(snapshot, markers=())).device_ms < 9.0


def test_means_are_over_two_seconds_or_over_the_whole_of_a_younger_run():
    assert recent_step(measured()).steps == 2.0 * 100
    assert recent_step(measured(ticks=3)).steps == 1.5 * 100
    slow = measured(step_ms=1000.0)  # as many as hold five steps
    assert recent_step(slow).steps == 5


def test_a_tick_without_a_rate_has_no_steps():
    snapshot = measured()
    rates = (None, 100.0) * 10
    snapshot = changed(
        snapshot,
        series=changed(snapshot.series, values=snapshot.series.values | {"steps_per_s": rates}),
    )
    assert recent_step(snapshot).steps == 2 * 50
    slow = snapshot.series.values | {"steps_per_s": (None, 2.0) * 10}
    assert recent_step(changed(snapshot, series=changed(snapshot.series, values=slow))).steps == 5


def test_means_leave_out_the_warm_up():
    slow = (3000.0,) * 18 + (10.0,) * 2
    snapshot = measured()
    values = snapshot.series.values | {"step_ms": slow, "steps_per_s": (1 / 3,) * 18 + (100.0,) * 2}
    snapshot = changed(snapshot, series=changed(snapshot.series, values=values))
    warm = recent_step(changed(snapshot, steps_since_break=105))
    assert (warm.step_ms, warm.steps) == (pytest.approx(10.0), 100)


@pytest.mark.parametrize("state", ["paused", "switching"])
def test_an_interruption_shows_what_was_known_before(state):
    known = ask(gpu_step())
    stopped = changed(gpu_step(), state=state, pending={"batch_size": "16"}, steps_since_break=0)
    for _ in range(3):
        found = ask(stopped, known)
        known = found
    assert found.kind == state
    assert found.title == {"paused": "paused", "switching": "switching to batch_size=16 …"}[state]
    assert found.evidence[:1] == ("before that: GPU-bound",)
    assert found.evidence.count("before that: GPU-bound") == 1
    assert found.lanes == ask(gpu_step()).lanes
    assert found.tries == ()
    assert ask(stopped).lanes == ()


def compared(**values):
    shown = ComparisonShown(
        lever="precision",
        a="tf32",
        b="bf16",
        pairs=3,
        planned_pairs=40,
        change=None,
        low=None,
        high=None,
        history=(),
        steps_per_s=(None, None),
        host_ms=(None, None),
        verdict=None,
        failure=None,
    )
    return changed(shown, **values)


def test_there_is_no_new_answer_during_an_a_b():
    found = ask(changed(gpu_step(), comparison=compared()), ask(gpu_step()))
    assert (found.kind, found.title) == ("comparing", "an A/B is running: precision tf32 or bf16")
    over = changed(gpu_step(), comparison=compared(failure="the training ended"))
    assert ask(over).kind == "gpu"


def test_a_training_that_has_ended_says_what_limited_it():
    found = ask(changed(gpu_step(), state="finished"))
    assert (found.kind, found.title) == ("ended", "finished; it was GPU-bound")
    assert found.lanes
    assert found.tries == ()
    assert ask(Snapshot(state="failed")).title == "failed"


def test_before_the_first_step_it_is_starting():
    assert ask(Snapshot()).kind == "starting"
    assert ask(Snapshot(state="training")).kind == "starting"


def test_without_steps_it_says_for_how_long():
    found = ask(changed(gpu_step(), quiet_s=12.0))
    assert (found.kind, found.title) == ("silent", "no step for 12 s")


def test_a_hang_shows_where_the_ranks_are_also_before_the_first_step():
    stacks = (
        RankStack(rank=0, doing="waits in barrier (train.py:7)", collective="barrier"),
        RankStack(rank=1, doing="is in load (data.py:41)"),
    )
    hang = Hang(for_s=34.0, missing=(1,), stacks=stacks)
    switching = changed(gpu_step(), state="switching", hang=hang)  # a lever that no step takes up
    for shown in (Snapshot(state="training", hang=hang), changed(gpu_step(), hang=hang), switching):
        found = ask(shown)
        assert (found.kind, found.title) == ("silent", "no rank has finished a step for 34 s")
        assert found.evidence[0] == "rank 1 is in load (data.py:41)"
    unanswered = changed(gpu_step(), hang=Hang(for_s=12.0), quiet_s=12.0)
    assert ask(unanswered).title == "no step for 12 s"


# ── lanes ───────────────────────────────────────────────────────────────────────────────


def shape(found):
    return [(lane.name, [part.label for part in lane.parts], lane.rest) for lane in found.lanes]


def test_a_short_label_is_a_word_or_its_first_letters():
    assert look("your_code", "your code", 0)[1] == "code"
    assert [look("own", label, 0)[1] for label in ("copy", "decode")] == ["copy", "dec"]


def test_a_phase_has_its_own_hue_or_one_of_six_in_turn():
    hues = [look("own", "own", index)[0] for index in range(8)]
    assert hues == [1, 2, 3, 4, 5, 6, 1, 2]
    assert {look("forward", "forward", index)[0] for index in range(8)} == {
        METRICS["forward_ms"].hue
    }


def test_without_a_step_there_are_no_lanes():
    assert lanes_of(Snapshot(), RecentStep()) == ()


def test_two_streams_have_a_lane_each_and_the_host_its_own():
    assert shape(ask(two_streams())) == [
        ("train", ["forward", "backward", "optimizer"], "idle"),
        ("encode", ["encode"], "idle"),
        ("host", ["busy"], "ahead · data 0"),
    ]


def test_one_stream_is_one_lane():
    assert shape(ask(gpu_step())) == [
        ("GPU", ["encode", "forward", "backward", "optimizer"], "idle"),
        ("host", ["busy"], "ahead · data 0"),
    ]


def test_on_a_cpu_host_and_device_are_one_lane():
    assert shape(ask(cpu_step())) == [
        ("CPU", ["data wait", "encode", "forward", "backward", "optimizer"], "other")
    ]


def test_unknown_phases_have_a_hue_too():
    own = (Phase(name="all-reduce", label="all-reduce", lane="train"),)
    snapshot = changed(measured(**{"all-reduce_ms": 4.0}), phases=own)
    assert ask(snapshot).lanes[0].parts == (Part("all-reduce", "all", 4.0, "fill-1"),)


@given(
    st.lists(st.floats(0, 1e6), max_size=6),
    st.floats(1e-6, 1e6),
)
def test_the_parts_of_a_lane_and_its_rest_add_up_to_the_step(parts_ms, step_ms):
    found = lane("GPU", [Part("p", "p", ms, "fill-1") for ms in parts_ms], step_ms, "idle")
    assert found.rest_ms >= 0
    total_ms = sum(part.ms for part in found.parts) + found.rest_ms
    assert total_ms == pytest.approx(step_ms)


# ── what to try ─────────────────────────────────────────────────────────────────────────


def test_a_gpu_bound_training_tries_pipelining_then_bf16():
    assert tried(gpu_step())[:2] == ["pipelined=on", "precision=bf16"]
    assert tried(two_streams())[:2] == ["precision=bf16", "channels_last=on"]


def test_a_host_without_time_for_more_launches_tries_no_autocast():
    assert "precision=bf16" in tried(gpu_step(host_ms=7.4))
    assert "precision=bf16" not in tried(gpu_step(host_ms=7.5))


def test_a_launch_bound_training_tries_a_graph_first():
    assert tried(launching())[0] == "cuda_graph=on"


def test_a_sync_bound_training_tries_fewer_waits_and_no_graph():
    loss = measured("masked_loss", chosen={"data": "resident"}, host_ms=9.9)
    assert tried(loss)[0] == "loss=minmax"
    assert "cuda_graph=on" not in tried(loss)
    images = measured("augment", chosen={"augment_on": "gpu"}, host_ms=9.9)
    assert tried(images)[:2] == ["rotation=batched", "pin_memory=on"]


def test_another_form_of_the_loss_is_less_work_but_where_none_waits_no_remedy_for_waits():
    chosen = {"data": "resident", "loss": "ignore_index"}
    busy = measured("masked_loss", chosen=chosen, device_ms=9.9)
    idle = measured("masked_loss", chosen=chosen)
    assert ["loss=minmax" in tried(one) for one in (busy, idle)] == [True, False]


def test_only_where_no_loader_makes_batches_a_larger_one_gains_for_sure():
    def gain_with(data):
        launches = read(measured(chosen={"data": data}, host_ms=9.5), gpu_util_pct=40.0)
        (batch,) = [one for one in ask(launches).tries if one.lever == "batch_size"]
        return batch.gain.label

    assert [gain_with(data) for data in ("loader", "cached")] == ["up to +100 %", "about +100 %"]


def test_more_workers_are_tried_on_a_gpu_also_where_nothing_waits_but_not_without_a_loader():
    def tries_workers(**changes):
        return any(one.startswith("num_workers=") for one in tried(measured(**changes)))

    assert tries_workers()
    assert tries_workers(data_ms=3.0)
    assert not tries_workers(data_ms=3.0, chosen={"data": "cached"})


def test_a_number_of_loader_workers_that_is_not_set_is_none():
    assert [loader_workers(one) for one in ({}, {"num_workers": "3"})] == [0, 3]


def test_prefetching_is_not_tried_without_loader_workers():
    def tried_with(workers):
        starved = measured(data_ms=5.0, host_ms=1.0, chosen={"num_workers": workers})
        return {one.lever for one in ask(starved).tries}

    assert "prefetch_factor" in tried_with("1")
    assert "prefetch_factor" not in tried_with("0")


def sleeping(workers, loader_cores, data_ms=8.0):
    """A CPU training of two cores whose loader workers use so many cores, and wait for files."""
    values = {"cpu_pct": 100 * loader_cores + 10.0, "loader_cpu_pct": 100 * loader_cores}
    return changed(
        measured(
            "jpeg_input",
            device=CPU,
            chosen={"num_workers": str(workers)},
            data_ms=data_ms,
            device_ms=10.0 - data_ms,
        ),
        host=HostReading(at_s=0.0, values=values),
    )


@pytest.mark.parametrize(
    ("workers", "loader_cores", "proposed"),
    [
        (2, 0.1, "num_workers=4"),  # ten would do, by the wait
        (2, 1.0, "num_workers=4"),  # half a core each
        (2, 1.1, None),  # they compute: no core is left for another
        (2, 0.0, "num_workers=4"),
        (4, 0.2, "num_workers=8"),
        (1, 0.9, "num_workers=2"),
        (0, 0.0, "num_workers=2"),  # how a worker would spend its time is unknown
    ],
)
def test_on_a_cpu_loader_workers_that_mostly_wait_may_be_more_than_the_cores(
    workers, loader_cores, proposed
):
    tried_with = ask(sleeping(workers, loader_cores), cores=2).tries
    found = [one.label for one in tried_with if one.lever == "num_workers"]
    assert found == ([] if proposed is None else [proposed])


def test_loader_workers_of_which_nothing_is_known_are_no_more_than_the_cores():
    unread = changed(sleeping(2, 0.1), host=None)
    assert "num_workers" not in {one.lever for one in ask(unread, cores=2).tries}


def test_batches_kept_ready_are_no_remedy_for_a_loader_that_is_too_slow_on_average():
    def tried_with(data_ms):
        waiting = measured(data_ms=data_ms, host_ms=1.0, device_ms=10.0 - data_ms)
        return {one.lever for one in ask(waiting).tries}

    assert "prefetch_factor" in tried_with(4.9)
    assert "prefetch_factor" not in tried_with(5.0)
    assert "num_workers" in tried_with(5.0)


def test_a_starved_training_tries_more_workers_as_long_as_there_are_cores():
    starved = measured("jpeg_input", data_ms=3.0)
    assert tried(starved)[:2] == ["num_workers=8", "input=tensor_decode"]
    assert ask(starved, cores=6).tries[0].label == "num_workers=6"
    assert ask(starved, cores=4).tries[0].lever == "input"
    busy = changed(starved, host=HostReading(at_s=0.0, values={"cpu_pct": 790.0}))
    assert ask(busy, cores=8).tries[0].lever == "input"


def test_a_cpu_is_not_offered_what_only_a_gpu_can():
    for workload, entry in CATALOGUE.items():
        for ms in ({"data_ms": 3.0}, {"device_ms": 9.5}, {}):
            levers = {one.lever for one in ask(measured(workload, device=CPU, **ms)).tries}
            assert not levers & {"cuda_graph", "pin_memory", "pipelined", "backward_thread"}
            assert levers <= {lever.name for lever in entry.levers}


def shared(workload, loader_pct, *, core_wait_pct=0.0, chosen=None, **ms):
    """A training on two cores, all in use: this share of its CPU time is the loader workers'."""
    step = measured(workload, device=CPU, chosen=chosen, **{"device_ms": 9.5, "data_ms": 0.5, **ms})
    return changed(step, host=crowding(core_wait_pct, loader_cpu_pct=2 * loader_pct))


def first_on_two_cores(snapshot):
    return ask(snapshot, cores=2).tries[0].label


def test_on_a_cpu_that_the_loader_shares_less_loading_is_tried_with_a_ceiling():
    found = ask(shared("jpeg_input", 20.0), cores=2)
    assert found.title == "CPU-bound"
    assert found.evidence[1] == "loader workers use 20 % of the CPU time"
    # they run 0.4 of a core: were it their turn all along, the step would be shorter by 40 %
    assert found.tries[0].promise == "input baseline → crop_first: up to +67 %"
    assert first_on_two_cores(shared("augment", 20.0)) == "augment_on=gpu"


def test_a_cpu_whose_larger_part_the_loader_uses_is_input_bound():
    found = ask(shared("jpeg_input", LOADER_PCT), cores=2)
    assert found.title == "input-bound"
    assert found.evidence[0] == "loader workers use 50 % of the CPU time"
    assert found.tries[0].label == "input=crop_first"
    assert ask(shared("jpeg_input", LOADER_PCT - 0.1), cores=2).title == "CPU-bound"


@pytest.mark.parametrize("device", [CPU, GPU])
def test_without_loader_workers_it_says_that_the_training_process_makes_the_batches(device):
    alone = measured("jpeg_input", device=device, chosen={"num_workers": "0"}, data_ms=6.0)
    alone = changed(alone, host=crowding(0.0, cpu_pct=190.0, loader_cpu_pct=0.0))
    said = ("waits 4.00 of 10.0 ms", "batches are made in the training process")
    assert ask(alone, cores=2).evidence[:2] == said
    from_memory = changed(alone, settings={**alone.settings, "data": "cached"})
    assert said[1] not in ask(from_memory, cores=2).evidence


def test_loader_workers_on_cores_that_the_training_does_not_need_are_no_limit():
    found = ask(shared("jpeg_input", 80.0), cores=8)
    assert found.title == "CPU-bound"
    assert not {one.lever for one in found.tries} & {"input", "data"}


def test_a_loader_that_takes_little_of_a_cpu_is_no_remedy():
    tried_with = {one.lever for one in ask(shared("jpeg_input", 9.0), cores=2).tries}
    assert not tried_with & {"input", "data", "num_workers"}


@pytest.mark.parametrize(
    ("of", "kind"),
    [
        ({}, "cpu"),
        ({"core_wait_pct": 60.0}, "cores"),
        ({"data_ms": 1.2, "device_ms": 8.8}, "data"),
        ({"device_ms": 8.0}, "none"),
    ],
)
@pytest.mark.parametrize(
    ("workload", "best"),
    [
        ("masked_loss", "loss=minmax"),
        ("encdec", "channels_last=on"),
        ("jpeg_input", "input=crop_first"),
    ],
)
def test_on_a_cpu_without_a_free_core_the_same_is_tried_whatever_the_limit(
    workload, best, of, kind
):
    snapshot = shared(workload, 12.0, **of)
    assert ask(snapshot, cores=2).kind == kind
    assert first_on_two_cores(snapshot) == best


@pytest.mark.parametrize("workload", CATALOGUE)
@pytest.mark.parametrize("device", [GPU, CPU])
@pytest.mark.parametrize("ms", [{"data_ms": 3.0}, {"host_ms": 9.9}, {"device_ms": 9.5}, {}])
def test_what_is_tried_is_valid_and_not_active(workload, device, ms):
    snapshot = measured(workload, device=device, **ms)
    for one in ask(snapshot).tries:
        lever = next(each for each in CATALOGUE[workload].levers if each.name == one.lever)
        assert lever.canonical(one.value) == one.value != snapshot.settings[one.lever]
        assert one.why


def test_what_a_verdict_has_judged_comes_last():
    judged = changed(two_streams(), verdicts=(compared(verdict="no difference"),))
    assert tried(judged)[0] == "channels_last=on"
    assert tried(judged)[-1] == "precision=bf16"


def verdict_on(snapshot, low, high, **values):
    """The verdict of an A/B of tf32 (A) and bf16 (B), with the other settings of the snapshot."""
    others = {name: value for name, value in snapshot.settings.items() if name != "precision"}
    told = {"verdict": "a sentence", "change": (low + high) / 2, "low": low, "high": high}
    return compared(settings=others, **told, **values)


def test_a_change_that_an_a_b_has_shown_to_be_faster_comes_first_with_what_it_measured():
    faster = verdict_on(two_streams(), 0.41, 0.52, pairs=16)
    judged = changed(two_streams(), verdicts=(faster,))
    first = ask(judged).tries[0]
    assert first.promise == "precision tf32 → bf16: +41 to +52 %"
    assert first.why == "measured by an A/B"
    assert first.gain.source == "an A/B of 16 pairs, with the other settings as now"
    assert tried(judged).count("precision=bf16") == 1
    *_, held = given(Answers(), judged, judged)
    assert held.tries[0] == first


def test_what_was_measured_against_another_value_is_a_gain_of_the_way_back():
    slow = measured(chosen={"precision": "bf16"})
    slower = verdict_on(slow, -0.5, -0.2)
    first = ask(changed(slow, verdicts=(slower,))).tries[0]
    assert first.promise == "precision bf16 → tf32: +25 to +100 %"
    kept = changed(slow, verdicts=(verdict_on(slow, 0.41, 0.52),))
    assert "precision" not in {one.lever for one in ask(kept).tries}


@pytest.mark.parametrize(
    "less",
    [
        {"settings": {"batch_size": "8"}},
        {"ended_early": True},
        {"check_passed": False},
    ],
    ids=["other settings", "ended early", "the A/A check failed"],
)
def test_an_a_b_that_does_not_prove_a_gain_for_now_leaves_a_change_where_it_was(less):
    faster = changed(verdict_on(two_streams(), 0.41, 0.52), **less)
    assert ask(changed(two_streams(), verdicts=(faster,))).tries == ask(two_streams()).tries


def test_the_newest_verdict_with_these_settings_counts():
    of_now, slower = verdict_on(two_streams(), 0.1, 0.2), verdict_on(two_streams(), -0.2, -0.1)
    elsewhere = changed(slower, settings={"batch_size": "8"})
    assert tried(changed(two_streams(), verdicts=(of_now, elsewhere)))[0] == "precision=bf16"
    assert tried(changed(two_streams(), verdicts=(of_now, slower)))[-1] == "precision=bf16"


def test_more_workers_are_not_tried_where_those_there_are_wait_for_cores():
    waiting = changed(starved(None), host=crowding(20.0, cpu_pct=400.0))  # it asks for 5 cores
    assert "num_workers" in {one.lever for one in ask(waiting, cores=6).tries}
    assert "num_workers" not in {one.lever for one in ask(waiting, cores=5).tries}


def test_nothing_is_tried_where_no_a_b_can_run():
    assert tried(changed(gpu_step(), can=("levers",))) == []


def test_a_limit_stands_until_another_tick_is_over_or_something_else_goes_on():
    before = tuple(Marker(at_s=at_s, label="seed=1") for at_s in (1.0, 2.0, 3.0))
    answers, snapshot = Answers(), changed(gpu_step(), markers=before)
    levers = CATALOGUE["encdec"].levers
    first = answers.give(snapshot, levers)
    later = changed(snapshot, total_steps=5050, host=None)
    assert answers.give(later, levers) is first
    assert answers.give(changed(later, profiling=True), levers).kind == "profiling"
    assert answers.give(later, levers) == first
    waiting = changed(measured(data_ms=3.0), elapsed_s=HOLD_S)
    assert answers.give(waiting, levers).kind == "data"
    assert answers.give(changed(waiting, state="finished"), levers).kind == "ended"


def test_a_new_profile_is_looked_at_within_the_same_tick():
    answers, snapshot, levers = Answers(), launching(), CATALOGUE["encdec"].levers
    without = answers.give(snapshot, levers)
    profile = Summary(steps=10, step_ms=10.0, on_device=True, busy_ms=9.9)
    assert answers.give(snapshot, levers, profile=profile) != without


def test_a_change_that_was_over_within_a_tick_is_seen_at_once():
    answers, snapshot, levers = Answers(), gpu_step(), CATALOGUE["encdec"].levers
    best = answers.give(snapshot, levers).tries[0]
    moved = changed(
        snapshot,
        settings={**snapshot.settings, best.lever: best.value},
        steps_since_break=3,
        markers=(Marker(at_s=10.0, label=best.label),),
    )
    assert answers.give(moved, levers).kind == "measuring"
    answers.give(snapshot, levers)
    resumed = changed(moved, settings=snapshot.settings, elapsed_s=10.0)
    assert answers.give(resumed, levers).kind == "measuring"


def test_a_limit_holds_below_its_threshold_through_a_profile_and_once_it_has_ended():
    answers, levers, less = Answers(), CATALOGUE["encdec"].levers, measured(data_ms=0.9)
    assert ask(less).kind == "none"
    assert answers.give(measured(data_ms=1.1), levers).kind == "data"
    answers.give(changed(less, profiling=True), levers)
    assert answers.give(less, levers).kind == "data"
    end = changed(less, state="finished")
    for last in (end, changed(end, series=changed(end.series))):
        ended = answers.give(last, levers)
        assert ended.title == "finished; it was input-bound"
        assert sum(line.startswith("▸") for line in why_lines(ended, end)) == 1


def later(snapshot, elapsed_s):
    """The snapshot, and another tick of the series is over."""
    return changed(snapshot, elapsed_s=elapsed_s, series=changed(snapshot.series))


def given(answers, *snapshots, levers=CATALOGUE["encdec"].levers, every_s=1.0):
    """The answers to these snapshots, one after the other."""
    return [
        answers.give(later(one, number * every_s), levers, 8)
        for number, one in enumerate(snapshots)
    ]


def test_a_limit_stands_until_it_was_not_found_for_a_while():
    busy, waiting = gpu_step(), measured(data_ms=3.0)
    found = given(Answers(), busy, busy, *[waiting] * 6)
    assert [one.kind for one in found] == ["gpu"] * 6 + ["data"] * 2


def test_a_limit_that_comes_and_goes_with_other_jobs_does_not_flicker():
    alone, crowded = cpu_step(), changed(cpu_step(), host=crowding(30.0))
    found = given(Answers(), *[*[alone] * 3, *[crowded] * 4] * 4)
    assert {one.kind for one in found} == {"cpu"}
    assert given(Answers(), alone, *[crowded] * 6)[-1].kind == "cores"


def crowding(core_wait_pct, loader_cpu_pct=10.0, cpu_pct=200.0):
    """What is read of the host: the training uses two cores, unless `cpu_pct` differs."""
    values = {"cpu_pct": cpu_pct, "loader_cpu_pct": loader_cpu_pct, "core_wait_pct": core_wait_pct}
    return HostReading(at_s=0.0, values=values)


def test_a_limit_that_stands_is_shown_with_the_evidence_it_was_last_found_with():
    less = measured(device_ms=8.0)
    first, *held, over = given(Answers(), gpu_step(), *[less] * 6)
    assert not any("stands until" in line for line in why_lines(first, gpu_step(), 8))
    for shown in held[:4]:
        assert any("stands until" in line for line in why_lines(shown, less, 8))
        assert (shown.title, *shown.evidence) == (first.title, *first.evidence)
        assert shown.lanes != first.lanes  # those are of now
    assert over.evidence[0] == "GPU 80 %"


def test_a_limit_that_is_found_again_is_shown_with_what_is_measured_now():
    busy, less = gpu_step(), measured(device_ms=8.0)
    found = given(Answers(), busy, less, measured(device_ms=9.5))
    assert [one.evidence[0][:9] for one in found] == ["busy 99 %", "busy 99 %", "busy 95 %"]


def test_what_interrupts_a_limit_that_stands_shows_its_evidence_and_leaves_none_of_itself():
    answers, busy, less = Answers(), gpu_step(), measured(device_ms=8.0)
    given(answers, busy, less)
    evaluating = changed(later(less, 2.0), status="evaluating")
    resumed = later(less, 3.0)
    levers = CATALOGUE["encdec"].levers
    during, after = (answers.give(one, levers, 8) for one in (evaluating, resumed))
    assert during.evidence[:2] == ("before that: GPU-bound", "busy 99 % of 10.0 ms")
    assert after.evidence[0] == "busy 99 % of 10.0 ms"


def test_a_slow_rank_that_stands_keeps_its_number_with_its_evidence():
    crowded = behind(measured(device_ms=9.9, core_wait_pct=30.0), rank=1)
    first, held = given(Answers(), behind(), crowded)
    assert (held.limit, held.title) == ("straggler", "limited by rank 5")
    assert held.evidence == first.evidence


@pytest.mark.parametrize(
    ("first", "then", "limit"),
    [
        (gpu_step(), measured(data_ms=3.0), "gpu"),  # its own rule no longer matches
        (cpu_step(), changed(cpu_step(), host=crowding(30.0)), "cpu"),  # an earlier one does, too
        (measured(), measured(data_ms=3.0), "none"),  # no rule matched
    ],
)
def test_why_says_that_an_answer_stands_wherever_another_rule_is_the_first_that_matches(
    first, then, limit
):
    answers = Answers()
    *_, held = given(answers, first, then)
    assert held.limit == limit
    ended = answers.give(changed(later(then, 2.0), state="finished"), CATALOGUE["encdec"].levers, 8)
    for shown in (held, ended):
        (said,) = [line for line in why_lines(shown, then, 8) if line.startswith("means over")]
        assert said.endswith("; an answer stands until it was not found for 5 s")


def test_a_limit_of_which_nothing_is_measured_any_more_does_not_stand():
    found = given(Answers(), behind(), gpu_step())
    assert [one.kind for one in found] == ["straggler", "gpu"]


def test_a_throttling_that_is_over_does_not_stand():
    throttled = read(measured(device_ms=9.9), "sw_power_cap", sm_clock_mhz=990.0)
    clocks = {"sm_clock_mhz": (1980.0,) * 10 + (990.0,) * 10}
    series = changed(throttled.series, values=throttled.series.values | clocks)
    throttled = changed(throttled, series=series)
    over = changed(throttled, gpu=changed(throttled.gpu, values={"throttle": "none"}))
    assert [one.kind for one in given(Answers(), throttled, over)] == ["throttled", "gpu"]


def test_a_proposal_stands_until_it_was_not_found_for_a_while_and_its_range_is_of_now():
    one = {"num_workers": "1"}  # of 10 ms: four such workers would do, then three
    much = measured(chosen=one, data_ms=7.5, device_ms=2.5)
    less = measured(chosen=one, data_ms=6.0, device_ms=4.0)
    found = given(Answers(), much, *[less] * 6)
    said = [one.tries[0].promise for one in found]
    assert said[0] == "num_workers 1 → 4: +150 to +300 %"
    assert said[1:5] == ["num_workers 1 → 4: about +150 %"] * 4
    assert said[5:] == ["num_workers 1 → 3: +100 to +150 %"] * 2
    comes_and_goes = given(Answers(), *[much, less, less, less] * 5)
    assert {one.tries[0].label for one in comes_and_goes} == {"num_workers=4"}


def test_what_an_a_b_has_judged_goes_last_at_once():
    answers = Answers()
    comparing = changed(two_streams(), comparison=compared())
    judged = changed(two_streams(), verdicts=(compared(verdict="no difference"),))
    found = given(answers, two_streams(), comparing, judged)
    assert found[0].tries[0].label == "precision=bf16"
    assert found[-1].tries[0].label == "channels_last=on"


def in_pause(training, at_s, *marks):
    """The training, paused at `at_s`, after other marks."""
    markers = tuple(Marker(at_s=when, label=label) for label, when in (*marks, ("paused", at_s)))
    return changed(training, state="paused", status="paused", elapsed_s=at_s + 5, markers=markers)


def test_in_a_pause_the_answer_from_before_it_is_shown_wherever_a_replay_comes_from():
    waits = measured(data_ms=3.0)
    input_bound, gpu_bound = in_pause(waits, 10.0), in_pause(gpu_step(), 12.0, ("paused", 1.0))
    answers, levers = Answers(), CATALOGUE["encdec"].levers
    for training, paused, title in (
        (waits, input_bound, "input-bound"),  # played
        (waits, gpu_bound, "GPU-bound"),  # a jump ahead, from the training …
        (gpu_bound, input_bound, "input-bound"),  # … or from a pause
        (input_bound, gpu_bound, "GPU-bound"),
    ):
        answers.give(training, levers)
        for _ in range(2):
            assert answers.give(paused, levers).evidence[0] == f"before that: {title}"


@pytest.mark.parametrize(
    "doing",
    [
        {"status": "evaluating"},
        {"status": "saving a checkpoint"},
        {"profiling": True},
        {"state": "switching", "pending": {"precision": "tf32"}},
    ],
    ids=["evaluation", "checkpoint", "profile", "switch"],
)
def test_beside_what_interrupts_the_steps_is_the_answer_from_before_it_wherever_a_replay_comes_from(
    doing,
):
    waits = measured(data_ms=3.0)
    no_step = {name: (*column, None) for name, column in waits.series.values.items()}
    no_step["steps_per_s"] = (*waits.series.values["steps_per_s"], 0.0)
    ticks = Series(at_s=(*waits.series.at_s, waits.series.at_s[-1] + 0.5), values=no_step)
    within = changed(waits, **doing, series=ticks, elapsed_s=60.0, quiet_s=12.0)
    levers = CATALOGUE["encdec"].levers
    for earlier_s in (2.0, 90.0):  # a jump ahead, or back
        answers = Answers()
        answers.give(changed(gpu_step(), elapsed_s=earlier_s), levers)
        for shown_s in (0.0, 0.5):
            shown = answers.give(changed(within, elapsed_s=60.0 + shown_s), levers)
            assert shown.evidence[0] == "before that: input-bound"
    played = Answers()
    played.give(changed(gpu_step(), elapsed_s=59.0), levers)
    assert played.give(within, levers).evidence[0] == "before that: GPU-bound"


def test_in_an_a_b_the_answer_from_before_it_is_shown_wherever_a_replay_comes_from():
    marks = (("precision=tf32", 1.0), ("A/B", 10.0), ("evaluation", 12.0))
    began = changed(measured(data_ms=3.0), comparison=compared(), elapsed_s=10.1)
    within = changed(
        began,
        markers=tuple(Marker(at_s=at_s, label=label) for label, at_s in marks),
        steps_since_break=3,  # of this block
        elapsed_s=60.0,
    )
    blocks = {name: (*column, column[0] / 2) for name, column in within.series.values.items()}
    within = changed(within, series=Series(at_s=(*within.series.at_s, 10.5), values=blocks))
    answers, levers = Answers(), CATALOGUE["encdec"].levers
    for training in (gpu_step(), in_pause(gpu_step(), 5.0), began):
        answers.give(training, levers)
        paused, jumped = changed(within, state="paused"), changed(within, elapsed_s=75.0)
        for shown in (within, paused, within, jumped):
            found = answers.give(changed(shown, total_steps=6000), levers)
            assert found.evidence[:2] == ("before that: input-bound", "waits 3.00 of 10.0 ms")
            assert found.lanes == ask(began, ask(measured(data_ms=3.0))).lanes


def test_the_answer_from_right_before_an_a_b_is_kept_although_few_whole_ticks_are_of_its_steps():
    change, began = Marker(at_s=9.4, label="precision=tf32"), Marker(at_s=10.0, label="A/B")
    slow = measured(step_ms=50.0, device_ms=49.5)
    slow = changed(slow, markers=(change,), elapsed_s=9.9, steps_since_break=25)
    comparing = changed(slow, comparison=compared(), elapsed_s=10.2)
    within = changed(comparing, markers=(change, began), elapsed_s=10.4, steps_since_break=3)
    for snapshots in ((slow, comparing, within), (slow, within)):
        answers = Answers()
        *_, last = [answers.give(one, CATALOGUE["encdec"].levers) for one in snapshots]
        assert last.evidence[0] == "before that: GPU-bound"


def test_in_an_a_b_nothing_is_shown_of_what_came_before_the_last_change():
    marks = (Marker(at_s=9.8, label="precision=tf32"), Marker(at_s=10.0, label="A/B"))
    answers, comparing = Answers(), changed(gpu_step(), comparison=compared(), elapsed_s=60.0)
    answers.give(gpu_step(), CATALOGUE["encdec"].levers)
    shown = answers.give(changed(comparing, markers=marks), CATALOGUE["encdec"].levers)
    assert (shown.kind, shown.evidence) == ("comparing", ())


@pytest.mark.parametrize("jump_s", [0.0, 10.0])
def test_a_pause_shows_the_answer_that_stood_when_it_began(jump_s):
    answers, waits = Answers(), measured(data_ms=3.0)
    *_, held = given(answers, gpu_step(), waits)
    paused = in_pause(waits, 1.5)
    paused = changed(paused, elapsed_s=paused.elapsed_s + jump_s)
    for _ in range(2):
        shown = answers.give(paused, CATALOGUE["encdec"].levers, 8)
        assert shown.evidence[0] == f"before that: {held.title}" == "before that: GPU-bound"


def test_what_is_read_of_the_host_in_a_pause_is_no_evidence():
    crowded, answers = changed(cpu_step(), host=None), Answers()
    values = {**crowded.series.values, "core_wait_pct": (30.0,) * 20}
    crowded = changed(crowded, series=changed(crowded.series, values=values))
    *_, before = given(answers, crowded)
    assert before.evidence[0] == "the training waits for a core 30 % of the time"
    idle = {name: (*column, None) for name, column in values.items()}
    idle |= {"steps_per_s": (*values["steps_per_s"], 0.0), "core_wait_pct": (*(30.0,) * 20, 0.0)}
    paused = in_pause(crowded, 10.2)
    paused = changed(paused, series=Series(at_s=(*paused.series.at_s, 10.5), values=idle))
    for asked in (answers, Answers()):  # played, or a replay that began here
        shown = asked.give(paused, (), 8)
        assert shown.evidence[1] == before.evidence[0]
        said = " ".join(" ".join(why_lines(shown, paused, 8)).split())
        assert "▸ the training waits for a core 30 %" in said


def test_in_a_pause_the_reasons_are_those_from_before_it_and_in_an_a_b_there_are_none():
    waits, answers, levers = measured(data_ms=3.0, core_wait_pct=1.0), Answers(), ()
    *_, first = given(answers, waits)
    asked = [line for line in why_lines(first, waits, 8) if "matches from" in line]
    assert any(line.startswith("▸") for line in asked)
    paused = in_pause(waits, 11.0)
    lines = why_lines(answers.give(paused, levers, 8), paused, 8)
    assert set(asked) < set(lines)
    comparing = changed(waits, comparison=compared())
    for state in ("training", "paused"):
        shown = changed(comparing, state=state)
        lines = why_lines(answers.give(shown, levers, 8), shown, 8)
        assert lines[-1] == "the rules are not tried during an A/B"
        assert not any("matches from" in line for line in lines)


def test_in_a_pause_nothing_is_shown_of_what_came_before_a_change_or_came_later():
    answers, levers = Answers(), CATALOGUE["encdec"].levers
    newly = changed(
        in_pause(gpu_step(), 70.0, ("batch_size=64", 69.9)),
        settings=settings(batch_size="64"),
        steps_since_break=0,
    )
    first = in_pause(Snapshot(state="training", total_steps=1, series=Series()), 1.0)
    for paused in (newly, first):
        answers.give(changed(gpu_step(), elapsed_s=60.0), levers)
        assert answers.give(paused, levers).evidence == ()
