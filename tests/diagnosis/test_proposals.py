"""What is proposed: what surely gains, or acts on the part that limits."""

from functools import reduce

import pytest

from gpudash.diagnosis.answer import find
from gpudash.diagnosis.effects import EFFECTS, gain_of, helps_of
from gpudash.diagnosis.lever_change import LeverChange, change_pct
from gpudash.diagnosis.model import model_of, played_ms
from gpudash.diagnosis.recent_step import RecentStep, recent_step
from gpudash.protocol.training import Lever
from tests.diagnosis.recorded import NAMES, recorded
from tests.diagnosis.trainings import ask, changed, measured


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


def test_what_makes_the_device_work_less_acts_on_a_host_that_may_wait_for_it():
    waits = {"device_ms": 9.0, "host_ms": 10.0, "forward_ms": 8.0}
    assert "precision" in names(of_script(PRECISION, gpu_util_pct=60.0, **waits))


def test_a_sure_gain_is_proposed_whatever_limits():
    """A copy limits, and products are some of the rest: an H200 measured +5 % for tf32."""
    known, snapshot = recorded("copy_own_pinned")
    answer = find(snapshot, known.cores, known.summary).answer
    (tf32,) = answer.tries
    assert (answer.limit, tf32.label, tf32.gain.low_pct > 0) == ("copy", "precision=tf32", True)


@pytest.mark.parametrize("profiled", [False, True])
def test_no_gain_is_surely_more_than_a_step_without_the_parts_that_its_lever_acts_on(profiled):
    for name in NAMES:
        known, snapshot = recorded(name)
        summary = known.summary if profiled else None
        model = model_of(recent_step(snapshot, known.cores, summary))
        ways = {one.name: helps_of(one) for one in known.levers}
        for one in find(snapshot, known.cores, summary).answer.tries:
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
    )
    model = model_of(step, waits=False)
    change = LeverChange("more workers", before, after, step, model, workers=int(before))
    return gain_of(change)


def test_more_workers_leave_what_the_training_takes_apart_itself():
    found = more_workers("2", "16", unpack=7.0)
    assert found.high_pct == pytest.approx(100 * (10 / 9 / 0.97 - 1))


def test_workers_make_nothing_while_they_start_and_more_of_them_start_as_much_longer():
    some, most = (more_workers("2", value, loader_start=4.0) for value in ("4", "16"))
    assert most.high_pct == pytest.approx(100 * (10 / 6 / 0.97 - 1))
    assert some.low_pct < 0
    assert most.low_pct < -60


def test_a_first_worker_draws_no_batch_of_the_sampler():
    found = more_workers("0", "8", loader_start=4.0)
    assert found.high_pct == pytest.approx(100 * (10 / 6.2 / 0.97 - 1))  # with handing it over


@pytest.mark.parametrize("owner", ["loader_start_pct", "unpack_pct"])
def test_where_the_training_itself_is_waited_for_no_worker_is_proposed(owner):
    late = {"data_ms": 8.0, "host_ms": 2.0, "device_ms": 2.0}
    settings = {"num_workers": "2"}
    (sure,) = of_script(WORKERS, settings=settings, **late).tries
    assert sure.gain.low_pct > 100
    itself = of_script(WORKERS, settings=settings, **late, **{owner: 79.0})
    assert (itself.kind, itself.tries) == ("data", ())
