"""The evidence of an answer: its clauses, without and with a profile, and what `e` shows."""

import msgspec
import pytest
from rich.cells import cell_len

from gpudash.diagnosis.answer import find
from gpudash.diagnosis.causes.facts import waiting_settings
from gpudash.diagnosis.headline import answer_lines, why_lines
from gpudash.diagnosis.report import report_of
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol.answer import Answer, Gain, Try
from gpudash.protocol.inspections import CodeLine, CodeLines, Flops, Peak, Pinning, Profiled
from gpudash.protocol.readings import GpuReading, HostReading, OtherJobs
from gpudash.protocol.training import Phase
from gpudash.snapshot import RankRow
from gpudash.trace.summary import CopyUse, Summary, SyncUse
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
    starved,
)
from tests.having import having


@pytest.mark.parametrize("lasts_s", [0.1, 3.0])
def test_evaluations_that_take_most_of_the_time_limit_however_short_each_is(lasts_s):
    found = ask(evaluating(0.6, lasts_s))
    assert found.title == "paused"
    assert found.evidence[0] == "evaluation and checkpoints take 60 % of the time"
    seldom = ask(evaluating(0.4, lasts_s)).evidence
    assert "evaluation and checkpoints take 40 % of the time besides" in seldom


# ── evidence ────────────────────────────────────────────────────────────────────────


LACKS = "the training lacks 50 % of the core time it asks for"
LATE = measured(core_wait_pct=50.0, data_ms=4.0, device_ms=6.0)
CROWDED = {"no_core_pct": 80.0, "blocked_pct": 4.0, "own_code_ms": 8.0, "device_ms": 10.0}
SAID = {
    "a wait for cores": (measured(core_wait_pct=50.0), 0, LACKS),
    "what is the limit then": (
        LATE,
        1,
        "then: input-bound, the GPU waits for data 4.00 of 10.0 ms",
    ),
    "also if that is little": (
        measured(core_wait_pct=50.0, data_ms=1.0),
        1,
        "then: input-bound, the GPU waits for data 1.00 of 10.0 ms",
    ),
    "also if that is the script's own": (
        measured(device=CPU, core_wait_pct=80.0, host_ms=10.0, **CROWDED),
        1,
        "then: bound by your own code, your own code runs 1.20 of 10.0 ms beside launches",
    ),
    "the shares where nothing limits": (measured(), -1, "unattributed 40 %"),
    "the shares where nothing is known": (measured(device_ms=0.0), -1, "unattributed 100 %"),
    "the cores that a CPU uses": (
        changed(cpu_step(), host=HostReading(at_s=0.0, values={"cpu_pct": 1000.0})),
        -1,
        "the training uses 10.0 of 16 cores",
    ),
    "the slowest transform of a loader": (
        changed(measured(data_ms=3.0), transform_ms={"crop": 1.0, "decode": 11.0}),
        -1,
        "slowest transform: decode, 11.0 ms a sample",
    ),
}


@pytest.mark.parametrize(("snapshot", "at", "clause"), SAID.values(), ids=SAID)
def test_a_limit_is_named_with_its_evidence(snapshot, at, clause):
    assert ask(snapshot, cores=16).evidence[at] == clause


def test_levers_are_proposed_for_what_limits_beside_a_wait_for_cores_and_not_for_that():
    assert ask(LATE).tries
    assert not ask(measured(core_wait_pct=50.0)).tries


def asking(**counts):
    """A training that asks the driver for memory; a third of its step goes there."""
    waits = measured(host_ms=10.0, device_ms=10.0, gpu_util_pct=60.0)
    return changed(waits, host=HostReading(at_s=0.0, values=waits.host.values | counts))


def test_an_allocator_that_asks_the_driver_says_how_often_and_what_ends_that():
    often = {"device_allocs": 15.5, "device_frees": 15.0}
    said = "a step asks the driver for memory 15.5 times, and gives it back 15.0"
    emptied = ask(asking(alloc_retries=0.0, **often))
    assert emptied == having(
        title="bound by the allocator",
        evidence=(
            "asking the driver for memory takes about 3.05 of 10.0 ms",
            said,
            "memory does not run out: leave out what empties the cache",
        ),
    )
    ran_out = ask(asking(alloc_retries=0.5, **often))
    assert ran_out.evidence[2].startswith("memory runs out 0.5 times a step")
    grows = ask(asking(alloc_retries=0.0, device_allocs=30.0, device_frees=0.0))
    assert len(grows.evidence) == 2
    assert said not in ask(asking(device_allocs=0.4, device_frees=0.4)).evidence


def test_a_profile_has_the_time_and_the_line_that_empties_the_cache():
    empties = SyncUse("train.py", 51, "main", "empty_cache", 1.0, 1.2)
    profile = changed(profiled(), allocations=15.0, allocation_ms=4.0, syncs=(empties,))
    found = deepened(asking(device_allocs=15.0, device_frees=15.0), profile)
    assert found.evidence[0] == "asking the driver for memory takes 4.00 of 10.0 ms"
    assert found.evidence[2] == "1.20 ms of that at train.py:51 empty_cache"


@pytest.mark.parametrize(("low_pct", "is_told"), [(None, False), (-30.0, False), (80.0, True)])
def test_a_gain_whose_ends_are_far_apart_has_no_upper_end_in_text_or_document(low_pct, is_told):
    tried = Try("compile", "on", "fewer kernels", "off", Gain(low_pct, 154.0, "2 of 8 ms"))
    answer = Answer(limit="launch", title="launch-bound", tries=(tried,))
    (told,) = report_of(answer).proposals
    assert (told.low_pct, told.high_pct) == (low_pct, 154.0 if is_told else None)
    assert any("154" in line for line in answer_lines(gpu_step(), answer)) is is_told


def test_what_a_step_has_so_often_is_counted_always_or_by_a_profile():
    empties = SyncUse("train.py", 51, "main", "empty_cache", 2.0, 1.2)
    profile = changed(profiled(), collectives=3.0, syncs=(empties,))
    found = find(asking(device_allocs=15.0, compiles=0.5), profile=profile)
    assert report_of(found).counts == {
        "device_allocs": 15.0,
        "compiles": 0.5,
        "launches": 500.0,
        "waits": 2.0,
        "collectives": 3.0,
    }


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


def beside_a_renderer(cores, used_by_others=0.0):
    """A training without loader workers that uses 1.3 cores, and waits for as much again."""
    host = HostReading(
        at_s=0.0,
        values={
            "cpu_pct": 130.0 + 100 * cores,
            "loader_cpu_pct": 0.0,
            "other_cpu_pct": 100 * cores,
        },
    )
    jobs = OtherJobs(at_s=0.0, used_cores=used_by_others, cores=2)
    late = measured(
        device=CPU, core_wait_pct=50.0, data_ms=2.0, device_ms=3.0, chosen={"num_workers": "0"}
    )
    return ask(changed(late, host=host, other_jobs=jobs), cores=2)


def test_what_else_a_training_has_started_is_said_as_such():
    alone, beside = beside_a_renderer(0.0), beside_a_renderer(0.9)
    assert "the training uses 1.3 of 2 cores" in beside.evidence
    assert "its other processes use 0.9 cores" in beside.evidence
    assert not any("other processes" in one for one in alone.evidence)
    assert not any("loader workers" in one for one in beside.evidence)


@pytest.mark.parametrize(
    ("own", "of_others", "title"),
    [
        (0.0, 0.0, "limited by other jobs"),
        (0.9, 0.0, "short of cores"),
        (0.9, 0.8, "short of cores"),
        (0.8, 0.9, "limited by other jobs"),
    ],
)
def test_who_takes_more_of_the_cores_is_not_called_another_job_if_the_training_has_started_it(
    own, of_others, title
):
    assert beside_a_renderer(own, of_others).title == title


def test_an_input_bound_training_names_its_core_wait_from_where_that_warns():
    def said(core_wait_pct):
        waiting = measured(core_wait_pct=core_wait_pct, data_ms=7.0, host_ms=1.0, device_ms=2.0)
        return any("core time" in one for one in ask(waiting).evidence)

    assert (said(CORE_WAIT_WARNS_PCT), said(CORE_WAIT_WARNS_PCT - 0.1)) == (True, False)


@pytest.mark.parametrize(
    ("snapshot", "owner", "line"),
    [
        (cpu_step(), "device", "train.py:7"),
        (starved(0.0), "data", "data.py:9"),
        (evaluating(0.6), "asides", ""),
    ],
)
def test_an_answer_names_the_part_that_has_the_time_and_the_line_where_the_script_spends_it(
    snapshot, owner, line
):
    own, work = CodeLine("train.py", 7, "augment", 15), CodeLine("data.py", 9, "decode", 15)
    code = CodeLines(at_s=1.0, looks=20, lines=(own,), work=(work, own))
    answer = ask(changed(snapshot, code=code)).answer
    assert (answer.owner, answer.line) == (owner, line)
    told = f"the script is at {line} in 15 of 20 looks"
    assert (told in answer.evidence) is bool(line)


def test_a_busy_host_launches_or_waits_as_its_settings_show():
    assert ask(launching()).title == "launch-bound"
    loss = measured("masked_loss", chosen={"data": "resident"}, host_ms=9.9, device_ms=9.9)
    assert ask(loss).title == "sync-bound"
    assert "loss=nonzero can make it wait" in ask(loss).evidence[1]
    assert ask(changed(launching(), workload="train.py")).title == "launch- or sync-bound"
    assert ask(measured(host_ms=9.9)).title == "launch- or sync-bound"  # memory is not pinned


@pytest.mark.parametrize(
    ("chosen", "waiting"),
    [
        ({"rotation": "per_image", "augment_on": "batched"}, True),
        ({"rotation": "per_image", "augment_on": "cpu"}, False),
        ({"rotation": "batched", "augment_on": "batched"}, False),
    ],
)
def test_images_rotated_one_by_one_on_the_gpu_make_the_host_wait(chosen, waiting):
    snapshot = measured("augment", chosen=chosen)
    assert ("rotation" in waiting_settings(snapshot)) == waiting


def test_what_only_a_profile_shows_names_its_key():
    own = changed(launching(), workload="train.py")
    asks = "t profiles some steps and tells"
    assert asks not in ask(own).evidence
    assert asks in ask(changed(own, can=(*own.can, "profile"))).evidence


@pytest.mark.parametrize("snapshot", [gpu_step(), measured(device=CPU, core_wait_pct=30.0)])
def test_why_breaks_no_line_in_80_columns(snapshot):
    lines = why_lines(ask(snapshot))
    assert [line for line in lines if cell_len(line) > 80 - 4] == []


# ── with a profile ────────────────────────────────────────────────────────────────


COPIES = (CopyUse("to device", is_pinned=False, count=1.0, mib=24.0, ms=2.5, gb_s=10.0),)
WAIT = SyncUse("/home/me/loss.py", 41, "forward", "nonzero", 1.0, 1.9)


@pytest.mark.parametrize(
    ("kind", "profile", "ms"),
    [
        ("launch", profiled(), {"host_ms": 10.0}),
        ("none", profiled(), {"host_ms": 6.0}),
        ("sync", profiled(blocked_ms=4.0), {"host_ms": 10.0}),
        ("launch", profiled(blocked_ms=0.9), {"host_ms": 10.0}),
        ("gpu", profiled(busy_ms=9.8, idle_ms={"host": 0.2}, blocked_ms=9.0), {"host_ms": 10.0}),
        ("communication", profiled(busy_ms=9.4, idle_ms={}, exposed_ms=5.5), {"host_ms": 10.0}),
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
    return profiled(busy_ms=8.0, idle_ms={"host": 2.0}, copies=COPIES, profiled=traced)


def test_pinning_that_takes_longer_than_it_saves_is_not_proposed_and_the_answer_says_so():
    copying = measured(chosen={"pin_memory": "off"}, host_ms=10.0)
    why_not = "pinning would take 16.0 ms, longer than that"
    quick, slow = (deepened(copying, pinning(ms)) for ms in (1.0, 16.0))
    assert [found.kind for found in (quick, slow)] == ["copy", "copy"]
    (pinned,) = [one for one in quick.tries if one.lever == "pin_memory"]
    assert pinned.promise == "pin_memory off → on: +8 to +29 %"
    assert "pin_memory" not in [one.lever for one in slow.tries]
    assert why_not in slow.evidence
    even = deepened(copying, pinning(2.5))  # as long as the copy
    for found in (quick, even):
        assert not any("pinning would take" in one for one in found.evidence)
    able = changed(copying, can=("blocks", "profile"))
    blind = deepened(able, profiled(copies=COPIES)).evidence  # a profile that could not measure it
    assert not any("what pinning would take" in one for one in blind)


def test_a_copy_that_the_host_waits_for_is_at_its_line():
    waits = SyncUse("train.py", 40, "main", "to", count=1.0, blocked_ms=2.5)
    profile = msgspec.structs.replace(pinning(1.0), syncs=(waits,))
    answer = deepened(measured(chosen={"pin_memory": "off"}, host_ms=10.0), profile).answer
    assert (answer.limit, answer.line) == ("copy", "train.py:40")
    assert "the host waits for it at train.py:40" in answer.evidence


def test_before_a_profile_pinning_has_no_range_and_the_answer_asks_for_one():
    asks = "t profiles some steps and tells what pinning would take"
    able = {"can": ("blocks", "profile")}
    times = {"copy_ms": 5.0, "host_ms": 7.0, "device_ms": 6.0}
    unpinned, is_pinned = (
        ask(changed(measured(chosen={"pin_memory": value}, **times), **able))
        for value in ("off", "on")
    )
    (pins,) = (one for one in unpinned.tries if one.lever == "pin_memory")
    assert (pins.promise, pins.gain.low_pct) == ("pin_memory off → on: perhaps much", None)
    assert (asks in unpinned.evidence, asks in is_pinned.evidence) == (True, False)


def test_a_profile_without_device_events_changes_nothing():
    blind = Summary(steps=10, step_ms=10.0, on_device=False)
    for snapshot in (cpu_step(), gpu_step(), launching(), measured(data_ms=3.0)):
        assert deepened(snapshot, blind) == ask(snapshot)
        assert why_lines(deepened(snapshot, blind))


def test_a_wait_is_shown_with_its_line_and_the_gain_without_waits():
    waiting = profiled(blocked_ms=2.0, syncs=(WAIT, SyncUse("", 0, "", "aten::item", 1.0, 0.1)))
    found = deepened(measured(host_ms=10.0), waiting)
    assert found.evidence == (
        "without its waits +25 to +67 %",
        "the host waits 1.90 of 10.0 ms at me/loss.py:41 nonzero",
        "0.10 ms in aten::item",
    )
    assert any("me/loss.py:41  nonzero" in one for one in why_lines(found))


def test_a_busy_gpus_evidence_has_its_share_of_the_peak_flops():
    counted = Profiled(
        at_s=0.0,
        path="",
        first_step=1,
        steps=1,
        steps_ms=10.0,
        took_ms=0.0,
        precision="bf16",
        peak=Peak(matmul_tflops={"bf16": 700.0}, memory_gb_s=3000.0),
        untraced_phases_ms={"forward": 2.0},
        flops=Flops(step_gflop=2870.0, covered_pct=100.0, phases_gflop={"forward": 700.0}),
    )
    busy = profiled(busy_ms=9.9, idle_ms={}, profiled=counted)
    said = "MFU 41 % of the 700 TFLOP/s that bf16 reached here"
    evidence = deepened(measured(tensor_active_pct=38.0), busy).evidence
    at = evidence.index(said)
    assert "tensor cores 38 %" in evidence[at - 1]
    assert evidence[at + 1] == "MFU by phase: forward 50 %"


def test_while_steps_are_profiled_the_answer_from_before_is_shown():
    found = ask(changed(gpu_step(), profiling=True), ask(gpu_step()))
    assert (found.kind, found.evidence[0]) == ("profiling", "before that: GPU-bound")


EXCHANGE = Phase(name="communication", label="communication", lane="train")


def test_a_rank_that_loads_slowly_is_named_and_the_loaders_levers_are_proposed_for_it():
    """Rank 0, whose step is measured, waits for no data, but for rank 1."""
    step = measured(step_ms=10.0, device_ms=9.5, communication_ms=6.0, data_ms=0.3, host_ms=9.0)
    step = changed(step, phases=(*step.phases, EXCHANGE))
    slow = {"rank": 1, "phase": "data", "excess_ms": 6.0, "slower_pct": 60.0, "others_wait_ms": 6.0}
    found = ask(behind(step, **slow))
    assert found.title == "limited by rank 1"
    assert found.evidence[0] == "rank 1 is 60 % slow in its data loading"
    told = changed(
        step, ranks=tuple(RankRow(rank=one, values={"data_ms": 6.3 * one}) for one in (0, 1))
    )
    assert ask(behind(told, **slow)).evidence[0] == "rank 1 waits for data 6.30 of 10.0 ms"
    assert found.evidence[-1] == "the loader's levers may change that"
    gains = {one.lever: one.gain.high_pct for one in found.tries if one.gain is not None}
    assert gains["num_workers"] > 50


def exchanging(rank_1_ms, **ms):
    """Two ranks, of which rank 0 communicates for 6 ms of 10."""
    step = measured(device_ms=9.5, communication_ms=6.0, **ms)
    waits_ms = enumerate((6.0, rank_1_ms))
    ranks = (RankRow(rank=one, values={"communication_ms": each_ms}) for one, each_ms in waits_ms)
    return changed(step, phases=(*step.phases, EXCHANGE), ranks=tuple(ranks))


@pytest.mark.parametrize("device", [GPU, CPU], ids=lambda one: one.kind)
def test_what_a_rank_waits_for_another_is_no_communication_before_the_ranks_are_compared(device):
    """The rank that comes last only sends. The host may wait as well, for its device."""
    late = ask(exchanging(0.5, device=device, host_ms=9.8))
    assert (late.kind, late.title) == ("straggler", "limited by a late rank")
    assert late.evidence[:2] == (
        "rank 0 waits 5.50 of 10.0 ms in collectives",
        "rank 1 waits least",
    )
    sent = ask(exchanging(5.5, device=device))
    assert (sent.title, sent.evidence[0]) == (
        "communication-bound",
        "nothing but communication runs 6.00 of 10.0 ms",
    )
    compared = changed(exchanging(0.5, device=device), are_compared=True)
    assert ask(compared).title == "communication-bound"


def shared(snapshot, pct):
    """The training on a GPU of which processes of others have so much."""
    gpu = {"index": 0, "uuid": "GPU-1", "name": "H200", "busiest_other": "it.py (pid 7)"}
    return changed(snapshot, gpu=GpuReading(at_s=1.0, others_pct=pct, **gpu))


def test_others_on_the_gpu_are_named():
    found = ask(shared(gpu_step(), 45.0))
    assert found.title == "limited by other jobs on the GPU"
    assert found.evidence == (
        "processes of others use 45 % of the GPU's time",
        "the busiest is it.py (pid 7)",
        "until they end, an A/B has a wide interval",
    )
    assert found.tries == ()  # what looks like the training's work is theirs, too


def test_others_on_the_gpu_stand_beside_another_limit():
    found = ask(shared(starved(0.0), 45.0))
    assert found.kind == "data"
    assert "processes of others use 45 % of the GPU's time" in found.evidence
    assert ask(shared(gpu_step(), 5.0)).evidence == ask(gpu_step()).evidence
