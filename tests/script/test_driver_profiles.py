"""How a script is profiled at a dashboard's request, and how that ends early."""

import json
import threading

import pytest
import torch

from gpudash.instrument import flops
from gpudash.instrument import profiler as profiler_module
from gpudash.instrument.reporter import RECENT_STEPS
from gpudash.metrics import has_phases
from gpudash.protocol.commands import Profile, Rehearse
from gpudash.protocol.inspections import Profiled, Rehearsed
from gpudash.protocol.training import Progress, Refused
from tests.script.toy_script import Dashboard, path
from tests.waiting import until


def is_counting() -> bool:
    return torch._C._len_torch_dispatch_stack() > 0


MANY = 10**6
pytestmark = pytest.mark.usefixtures("known_peak")


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch) -> None:
    """By another test in this process: then no flops would be counted."""
    monkeypatch.setattr(flops, "anything_compiled", lambda: False)


@pytest.fixture
def profiled(training, dashboard, tmp_path) -> Dashboard:
    """A dashboard that has begun a profile of many steps."""
    dashboard.send(Profile(id=1, steps=MANY, path=str(tmp_path / "trace.json")))
    training.until(torch.autograd._profiler_enabled)
    return dashboard


def test_profiled_steps_are_counted_but_not_timed(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: len(dashboard.reported) > RECENT_STEPS)
    training.until(lambda: any(has_phases(one.values) for one in dashboard.reported))
    dashboard.send(Profile(id=1, steps=5, path=str(tmp_path / "trace.json")))
    found = training.first(dashboard, Profiled)
    last = found.first_step + 4
    training.until(lambda: dashboard.reported[-1].step > last + 2)
    traced = range(found.first_step, last + 1)
    assert (found.answers, found.steps, found.precision) == ((1,), 5, "fp32")
    assert found.weights.mib > 0
    before_ms = [one.step_ms for one in dashboard.reported if one.step < found.first_step]
    assert min(before_ms) <= found.untraced_step_ms <= max(before_ms)
    phases = found.flops.phases_gflop
    assert sum(phases.values()) == pytest.approx(found.flops.step_gflop)
    assert phases.keys() == {"forward", "backward"} <= found.untraced_phases_ms.keys()
    assert [one.step for one in dashboard.reported if one.step in traced] == []
    counted = [one for report in dashboard.of(Progress) for one in report.untimed]
    assert {*traced} <= {one.step for one in counted}
    assert len(dashboard.reported) + len(counted) == dashboard.reported[-1].step
    first = next(one for one in dashboard.reported if one.step > last)
    assert first.step == last + 1
    assert first.finished_s - first.step_ms / 1e3 >= found.at_s
    assert {one.segment for one in dashboard.reported} == {0}
    assert dashboard.of(Progress)[-1].total_steps == dashboard.reported[-1].step
    assert dashboard.of(Progress)[-1].total_samples == 4 * dashboard.reported[-1].step
    (paused,), (resumed,) = dashboard.of("paused"), dashboard.of("resumed")
    assert (paused.why, paused.after_step < found.first_step) == ("profile", True)
    assert paused.at_s < resumed.at_s
    assert (resumed.after_step, resumed.warmup_steps > 0) == (last, True)
    names = {
        one.get("name") for one in json.loads((tmp_path / "trace.json").read_bytes())["traceEvents"]
    }
    assert {f"ProfilerStep#{step}" for step in traced} <= names


def test_after_a_rehearsal_the_next_steps_are_not_warm(training, dashboard) -> None:
    """A loader has gone on meanwhile."""
    dashboard.send(Rehearse(id=1))
    training.first(dashboard, Rehearsed)
    (again,) = dashboard.of("resumed")
    assert (again.phase, again.warmup_steps > 0) == ("training", True)
    training.until(lambda: dashboard.reported and dashboard.reported[-1].step > again.after_step)
    assert again.after_step > 0


def test_a_profile_ends_with_its_dashboard(training, profiled, tmp_path) -> None:
    profiled.die()
    training.until(lambda: not torch.autograd._profiler_enabled())
    assert not list(tmp_path.glob("*trace*"))


def test_a_step_that_does_not_end_makes_its_profile_end(training, profiled, monkeypatch) -> None:
    monkeypatch.setattr(profiler_module, "PROFILE_LIMIT_S", 0.0)
    until(lambda: training.driver.idle() or profiled.of(Refused) + profiled.of(Profiled))
    assert profiled.of(Refused)[0].kind == "no_profile"
    assert not torch.autograd._profiler_enabled()
    training.goes_on()


def test_a_profile_is_refused_if_the_training_ends_in_it(training, profiled, tmp_path) -> None:
    training.driver.close()
    assert not torch.autograd._profiler_enabled()
    training.until(lambda: profiled.gone)
    (refused,) = profiled.of(Refused)
    assert refused.answers == (1,)
    assert refused.reason == f"the training ended before {MANY} steps were traced"
    assert not list(tmp_path.glob("*trace*"))


def test_a_failure_of_gpudash_ends_a_profile(training, profiled) -> None:
    training.driver.failed("backward", ValueError("x"))
    assert not torch.autograd._profiler_enabled()
    training.until(lambda: profiled.of("resumed"))
    assert profiled.of(Refused)[0].answers == (1,)
    assert [one.why for one in profiled.of("paused")] == ["profile"]


@pytest.mark.parametrize("at_work", [torch.autograd._profiler_enabled, is_counting])
def test_a_failure_on_another_thread_ends_a_profile_at_the_next_border(
    training, dashboard, tmp_path, at_work
) -> None:
    dashboard.send(Profile(id=1, steps=MANY, path=str(tmp_path / "trace.json")))
    training.until(at_work)
    failing = threading.Thread(target=training.driver.failed, args=("backward", ValueError("x")))
    failing.start()
    failing.join()
    assert at_work()
    training.step()
    assert not at_work()
    training.until(lambda: dashboard.gone)
    assert dashboard.of(Refused)[0].answers == (1,)
    assert not list(tmp_path.glob("*trace*"))
