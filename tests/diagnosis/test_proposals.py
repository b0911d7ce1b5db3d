"""What to try: which levers, in which order, and with which gain."""

import pytest

from gpudash.diagnosis.answer import Answers
from gpudash.diagnosis.remedies import loader_workers
from gpudash.diagnosis.rules import LOADER_PCT
from gpudash.protocol.readings import HostReading
from tests.diagnosis.trainings import (
    CPU,
    GPU,
    ask,
    changed,
    compared,
    crowding,
    given,
    gpu_step,
    launching,
    measured,
    read,
    starved,
    two_streams,
)
from workloads import CATALOGUE


def tried(snapshot):
    return [one.label for one in ask(snapshot).tries]


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


def test_beside_other_jobs_a_loader_that_waits_gets_the_workers_that_it_needs_without_them():
    def found(cpu_pct, core_wait_pct, data_ms):
        times = {"data_ms": data_ms, "device_ms": 10.0 - data_ms}
        snapshot = measured("jpeg_input", device=CPU, chosen={"num_workers": "0"}, **times)
        values = {"cpu_pct": cpu_pct, "loader_cpu_pct": 0.0, "core_wait_pct": core_wait_pct}
        return ask(changed(snapshot, host=HostReading(at_s=0.0, values=values)), cores=2)

    alone, crowded = found(40.0, 0.0, 6.0), found(30.0, 25.0, 4.5)
    assert (alone.kind, crowded.kind) == ("data", "cores")
    assert (
        alone.evidence[2]
        == "making a batch waits more than it computes: the training uses 0.4 cores"
    )
    assert any(one.startswith("making a batch waits") for one in crowded.evidence)
    for one in (alone, crowded):
        workers = next(each for each in one.tries if each.lever == "num_workers")
        assert (workers.label, workers.gain is not None) == ("num_workers=2", True)


def test_loader_workers_that_mostly_wait_are_said_to_unless_nothing_waits_for_them():
    said = "making a batch waits more than it computes: a worker uses 5 % of a core"
    assert said in ask(sleeping(2, 0.1), cores=2).evidence
    values = {"cpu_pct": 110.0, "loader_cpu_pct": 10.0}
    busy = changed(sleeping(2, 0.1, data_ms=1.5), host=HostReading(at_s=0.0, values=values))
    assert (ask(busy).kind, said in ask(busy, cores=2).evidence) == ("cpu", True)
    computing = (sleeping(2, 1.2), sleeping(2, 0.1, data_ms=0.5))
    assert not any("making a batch" in one for each in computing for one in ask(each).evidence)


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
    times = {"data_ms": 6.0, "device_ms": 4.0}
    alone = measured("jpeg_input", device=device, chosen={"num_workers": "0"}, **times)
    alone = changed(alone, host=crowding(0.0, cpu_pct=190.0, loader_cpu_pct=0.0))
    said = ("waits 6.00 of 10.0 ms", "batches are made in the training process")
    assert ask(alone, cores=2).evidence[:2] == said
    from_memory = changed(alone, settings={**alone.settings, "data": "cached"})
    assert said[1] not in ask(from_memory, cores=2).evidence


@pytest.mark.parametrize(
    ("data_ms", "device_ms", "title"),
    [
        (1.6, 8.4, "CPU-bound"),
        (4.9, 5.1, "CPU-bound"),
        (5.0, 5.0, "input-bound"),
        (3.0, 2.9, "input-bound"),
        (1.6, 5.0, "CPU-bound"),
        (1.6, 4.9, "unclear, because no part fills the step"),
    ],
)
def test_on_a_cpu_the_longer_of_computing_and_waiting_for_data_is_the_limit(
    data_ms, device_ms, title
):
    times = {"data_ms": data_ms, "device_ms": device_ms}
    assert ask(measured(device=CPU, **times)).title == title
    assert ask(measured(device=GPU, **times)).title == "input-bound"


def test_beside_other_jobs_a_cpu_waits_for_data_of_its_own_if_it_waits_longer_than_it_computes():
    def kind(data_ms, device_ms):
        snapshot = measured(device=CPU, core_wait_pct=30.0, data_ms=data_ms, device_ms=device_ms)
        return ask(snapshot).kind

    assert (kind(5.0, 5.0), kind(4.9, 5.1)) == ("data", "cores")


def test_a_busy_cpu_says_how_long_it_waits_for_data_and_keeps_the_levers_of_its_loader():
    waits = {"data_ms": 1.6, "device_ms": 8.4}
    found = ask(measured("jpeg_input", device=CPU, **waits))
    assert found.evidence[:2] == ("computing 84 % of 10.0 ms", "besides, it waits for data 1.60 ms")
    levers = [one.lever for one in found.tries]
    assert levers[:3] == ["input", "num_workers", "prefetch_factor"]
    assert "besides, it waits for data 1.60 ms" not in ask(measured(device=CPU)).evidence
    alone = ask(measured("jpeg_input", device=CPU, chosen={"num_workers": "0"}, **waits))
    assert alone.evidence[2] == "batches are made in the training process"


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
        ({"data_ms": 1.2, "device_ms": 8.8}, "cpu"),
        ({"data_ms": 6.0, "device_ms": 4.0}, "data"),
        ({"device_ms": 4.9}, "none"),
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
