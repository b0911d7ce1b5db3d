"""What is proposed: what surely gains, or acts on the part that limits."""

from functools import reduce

import pytest

from gpudash.diagnosis.answer import find
from gpudash.diagnosis.effects import EFFECTS, gain_of, helps_of
from gpudash.diagnosis.lever_change import LeverChange, change_pct
from gpudash.diagnosis.model import model_of, played_ms
from gpudash.diagnosis.recent_step import RecentStep, recent_step
from gpudash.process_levers import OF_PROCESS
from gpudash.protocol.training import Lever, Phase, TrainingProcess
from gpudash.snapshot import RankRow, Straggler
from gpudash.trace.summary import Summary
from tests.diagnosis.recorded import NAMES, recorded
from tests.diagnosis.trainings import CPU, GPU, ask, changed, measured
from tests.having import having

OF_THREADS = next(one for one in OF_PROCESS if one.name == "threads")


def lever(**values):
    return Lever(summary="", source="", **values)


COMPILE = lever(name="compile", kind="switch", default="off", helps=(("on", "fewer kernels"),))
PRECISION = lever(
    name="precision",
    kind="choice",
    default="fp32",
    choices=("fp32", "tf32", "bf16"),
    helps=(("tf32", "tf32"), ("bf16", "bf16")),
)
WORKERS = lever(
    name="num_workers", kind="count", default="2", maximum=16, helps=(("next", "more workers"),)
)
CHANNELS_LAST = lever(
    name="channels_last", kind="switch", default="off", helps=(("on", "image order"),)
)
GRAD_SYNC = lever(
    name="grad_sync",
    kind="choice",
    default="each",
    choices=("each", "last"),
    helps=(("last", "fewer reductions"),),
    share=7 / 8,
)
IN_OWN_CODE = {"own_code_ms": 7.0, "device_ms": 2.0, "host_ms": 10.0, "forward_ms": 2.0}


def of_script(*levers, settings=None, **values):
    """A script with these levers, and its answer."""
    snapshot = measured(**{"gpu_util_pct": 20.0, **values})
    return ask(changed(snapshot, found="a script", levers=levers, settings=settings or {}))


def names(found):
    return [one.lever for one in found.tries]


def test_a_lever_that_may_gain_elsewhere_is_not_proposed():
    """Launches are three of ten ms, and own code seven: compiling may bring up to +40 %."""
    found = of_script(COMPILE, **IN_OWN_CODE)
    assert (found.kind, names(found)) == ("own_code", [])
    assert "loader workers or the device could do it, or only every tenth step" in found.evidence
    launching = of_script(COMPILE, device_ms=2.0, host_ms=10.0, forward_ms=2.0)
    assert (launching.kind, names(launching)) == ("launch", ["compile"])


def test_a_lever_of_which_nothing_is_foretold_is_proposed_where_it_acts_on_the_limit():
    elsewhere = of_script(CHANNELS_LAST, **IN_OWN_CODE)
    computing = of_script(CHANNELS_LAST, device_ms=9.9, gpu_util_pct=99.0)
    assert (names(elsewhere), names(computing)) == ([], ["channels_last"])


def test_a_cpu_that_computes_longer_than_it_waits_for_data_is_told_of_both_and_of_workers():
    found = ask(measured(device=CPU, data_ms=4.0, chosen={"num_workers": "0"}))
    assert (found.kind, "num_workers" in names(found)) == ("cpu", True)
    assert found.evidence[1].startswith("then: input-bound, the training waits for data 4.00 of")
    little = measured(device=CPU, core_wait_pct=14.0, no_core_pct=14.0, data_ms=0.9, device_ms=7.0)
    assert not any(one.startswith("then: ") for one in ask(little).evidence)  # a tenth is needed


def test_what_makes_the_device_work_less_acts_on_a_host_that_may_wait_for_it():
    waits = {"device_ms": 9.0, "host_ms": 10.0, "forward_ms": 8.0}
    assert "precision" in names(of_script(PRECISION, gpu_util_pct=60.0, **waits))


def test_fewer_averages_are_proposed_where_collectives_take_from_the_device_and_the_host_waits():
    """As of two H100s, where it measured +34.7 %; what collectives take is of a like training."""
    took = {"communication_ms": 11.2, "collective_ms": 80.0}
    times = {"step_ms": 80.4, "device_ms": 79.6, "host_ms": 79.3, "communication_ms": 11.2}
    exchange = Phase(name="communication", label="communication", lane="train")
    snapshot = changed(
        measured(gpu_util_pct=97.0, **times),
        found="a script",
        levers=(GRAD_SYNC,),
        settings={"grad_sync": "each"},
        phases=(exchange,),
        ranks=tuple(RankRow(rank=rank, values=took) for rank in (0, 1)),
    )
    found = ask(snapshot)
    assert (found.kind, [one.label for one in found.tries]) == ("gpu", ["grad_sync=last"])
    assert found.tries[0].gain.high_pct > 34.7


@pytest.mark.parametrize("kind", [None, "wandering"])
def test_fewer_reductions_are_fewer_launches_and_fewer_waits_for_a_rank(kind):
    """Eight bf16 passes on two H100s: launches limit, and an A/B measured +33 %."""
    slow = Straggler(rank=0, phase="compute", excess_ms=10.1, slower_pct=46.0, others_wait_ms=10.1)
    took = {"communication_ms": 6.4, "collective_ms": 12.0}
    counts = {"steps": 10, "launches": 719.0, "collectives": 48.0, "on_device": True}
    busy = {"busy_ms": 16.0, "exposed_ms": 6.4, "idle_ms": {"host": 28.0}}
    profile = Summary(step_ms=44.4, host_ms=44.0, **counts, **busy)
    snapshot = changed(
        measured(gpu_util_pct=40.0, step_ms=44.4, device_ms=16.0, host_ms=43.5, **took),
        found="a script",
        levers=(GRAD_SYNC,),
        settings={"grad_sync": "each"},
        phases=(Phase(name="communication", label="communication", lane="train"),),
        ranks=tuple(RankRow(rank=rank, values=took) for rank in (0, 1)),
        straggler=None if kind is None else changed(slow, kind=kind),
    )
    (last,) = ask(snapshot, profile=profile).tries
    assert last.label == "grad_sync=last"
    assert 20 < last.gain.high_pct < 50


@pytest.mark.parametrize("profiled", [False, True])
def test_no_gain_is_surely_more_than_a_step_without_the_parts_that_its_lever_acts_on(profiled):
    for name in NAMES:
        known, snapshot = recorded(name)
        summary = known.summary if profiled else None
        model = model_of(recent_step(snapshot, known.cores, summary))
        ways = {one.name: helps_of(one) for one in known.levers}
        for one in find(snapshot, known.cores, summary).tries:
            if one.gain is None or one.gain.low_pct is None:
                continue
            way = ways[one.lever].get(one.value) or ways[one.lever]["next"]
            rest_ms = min(map(played_ms, without(EFFECTS[way].shortens, model.scenarios)))
            assert one.gain.low_pct <= change_pct(model.step_ms, rest_ms), (name, one.promise)


def without(parts, scenarios):
    for times in scenarios:
        yield reduce(lambda rest, part: part.without(rest), parts, times)


# ── what the main process of a loader does itself ───────────────────────────────────────


def more_workers(before, after, **owners_ms):
    step = RecentStep(
        step_ms=10.0,
        data_ms=8.0,
        host_ms=2.0,
        device_ms=2.0,
        gpu_util_pct=20.0,
        owners_ms=owners_ms,
        workers=int(before),
    )
    model = model_of(step, waits=False)
    return gain_of(LeverChange("more workers", before, after, step, model))


def test_more_workers_leave_what_the_training_takes_apart_itself():
    found = more_workers("2", "16", unpack=3.0)
    assert found.high_pct == pytest.approx(100 * (10 / 5 / 0.97 - 1))
    assert more_workers("2", "16", unpack=4.5).high_pct == 0.0  # most of the wait


def test_workers_make_nothing_while_they_start_and_more_of_them_start_as_much_longer():
    some, most = (more_workers("2", value, loader_start=3.0) for value in ("4", "16"))
    assert most.high_pct == pytest.approx(100 * (10 / 5 / 0.97 - 1))
    assert some.low_pct < 0
    assert most.low_pct < -50


def test_a_first_worker_draws_no_batch_of_the_sampler():
    found = more_workers("0", "8", loader_start=3.0)
    assert found.high_pct == pytest.approx(100 * (10 / 5.2 / 0.97 - 1))  # with handing it over


@pytest.mark.parametrize("owner", ["loader_start_pct", "unpack_pct"])
def test_where_the_training_itself_is_waited_for_no_worker_is_proposed(owner):
    late = {"data_ms": 8.0, "host_ms": 2.0, "device_ms": 2.0}
    settings = {"num_workers": "2"}
    (sure,) = of_script(WORKERS, settings=settings, **late).tries
    assert sure.gain.low_pct > 100
    itself = of_script(WORKERS, settings=settings, **late, **{owner: 79.0})
    assert (itself.kind, itself.tries) == ("data", ())


# ── the garbage collector ───────────────────────────────────────────────────────────────


def test_of_rarer_collections_nothing_is_foretold_as_a_script_may_ask_for_them_itself():
    of_gc = next(one for one in OF_PROCESS if one.name == "gc")
    helps = tuple(of_gc.helps_by_value.items())
    moved = lever(name="gc", kind="choice", default="own", choices=of_gc.values, helps=helps)
    frozen, rare = of_script(moved, gc_pct=50.0, device_ms=2.0, host_ms=10.0).tries
    assert (frozen.value, frozen.gain.high_pct > 80) == ("frozen", True)
    assert (rare.value, rare.gain) == ("rare", None)


# ── threads ─────────────────────────────────────────────────────────────────────────────


THREADS = lever(
    name="threads",
    kind="choice",
    default="own",
    choices=OF_THREADS.values,
    helps=tuple(OF_THREADS.helps_by_value.items()),
)


def threads(own, *, cores, moved="own", device=CPU, **host):
    """Change and gain of a training that computes all the time on the CPU."""
    about = {"step_ms": 10.0, "host_ms": 10.0, "device_ms": 10.0, "cpu_pct": 100.0}
    snapshot = measured(device=device, **{**about, **host})
    process = TrainingProcess(pid=1, ready_s=0.0, device=device, versions={}, threads=own)
    about = {"levers": (THREADS,), "settings": {"threads": moved}, "found": "a script"}
    found = ask(changed(snapshot, process=process, **about), cores=cores)
    return {one.value: one.gain for one in found.tries}


def test_a_core_for_each_thread_splits_operators_at_best_among_all_of_them():
    found = threads(1, cores=4)
    assert found.keys() == {"4"}
    assert found["4"] == having(
        high_pct=pytest.approx(100 * (4 / 0.97 - 1)),
        label="perhaps much",
        source="threads of an operator: 1, cores that are there for them: 4.0",
    )
    half = threads(3, cores=4, cpu_pct=300.0)
    assert half["4"].label == "up to +37 %"


def test_what_operators_do_not_take_is_as_long_with_more_threads():
    (of_both,) = threads(1, cores=2, device_ms=6.0, own_code_ms=4.0).values()
    assert of_both.high_pct == pytest.approx(100 * (10 / 7 / 0.97 - 1))


@pytest.mark.parametrize(
    "crowded",
    [
        {"own": 4, "cpu_pct": 400.0},  # they have all cores
        {"own": 1, "core_wait_pct": 20.0},  # other jobs have them
        {"own": 1, "cpu_pct": 400.0, "other_cpu_pct": 300.0},  # as helpers have
        {"own": 1, "cpu_pct": 400.0, "loader_cpu_pct": 300.0},
        {"own": None},  # it is not known how many there are
        {"own": 1, "moved": "4", "cpu_pct": 400.0},
        {"own": 1, "device": GPU},
    ],
)
def test_more_threads_are_not_proposed_where_no_core_is_there_for_them(crowded):
    assert threads(cores=4, **crowded) == {}


def test_threads_that_wait_for_each_others_cores_may_be_fewer():
    """Eight threads compete for two cores: the one that trains is not given one for half a step."""
    crowded = {"cpu_pct": 200.0, "no_core_pct": 50.0}
    found = threads(8, cores=2, **crowded)
    assert found.keys() == {"2"}
    assert found["2"].high_pct == pytest.approx(100 * (2 / 0.97 - 1))
    assert threads(8, cores=2, moved="2", **crowded) == {}
