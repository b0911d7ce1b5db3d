"""How a script is profiled at a dashboard's request, and how that ends early."""

import json
import threading
import time

import pytest
import torch

from gpudash.instrument import flops
from gpudash.instrument import profiler as profiler_module
from gpudash.instrument.reporter import RECENT_STEPS
from gpudash.metrics import has_phases
from gpudash.protocol.commands import (
    Change,
    Profile,
)
from gpudash.protocol.inspections import Profiled
from gpudash.protocol.training import Progress, Refused
from tests.script.toy_script import Dashboard, path

pytestmark = pytest.mark.usefixtures("quick")


def is_counting() -> bool:
    return torch._C._len_torch_dispatch_stack() > 0


def profile(number: int, where: str = "trace.json", steps: int = 3) -> Profile:
    return Profile(id=number, steps=steps, path=where)


def test_profiled_steps_are_counted_but_not_timed(training, tmp_path, monkeypatch) -> None:
    # by another test in this process: then no step would be counted
    monkeypatch.setattr(flops, "anything_compiled", lambda: False)
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: len(dashboard.reported) > RECENT_STEPS)
    training.until(lambda: any(has_phases(one.values) for one in dashboard.reported))
    dashboard.send(profile(1, str(tmp_path / "trace.json"), steps=5))
    training.until(lambda: dashboard.of(Profiled))
    (found,) = dashboard.of(Profiled)
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
    names = {
        one.get("name") for one in json.loads((tmp_path / "trace.json").read_bytes())["traceEvents"]
    }
    assert {f"ProfilerStep#{step}" for step in traced} <= names


def test_a_command_ends_a_profile_early(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(profile(1, str(tmp_path / "trace.json"), steps=10**6))
    training.until(torch.autograd._profiler_enabled)
    dashboard.send(Change(id=2, settings={"precision": "bf16"}))
    training.until(lambda: dashboard.of("changed"))
    assert 1 <= dashboard.of(Profiled)[0].steps < 10**6


def test_a_profile_ends_with_its_dashboard(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(profile(1, str(tmp_path / "trace.json"), steps=10**6))
    training.until(torch.autograd._profiler_enabled)
    dashboard.die()
    training.until(lambda: not torch.autograd._profiler_enabled())
    assert not list(tmp_path.glob("*trace*"))


def test_a_step_that_does_not_end_makes_its_profile_end(training, tmp_path, monkeypatch) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(profile(1, str(tmp_path / "trace.json")))
    training.until(torch.autograd._profiler_enabled)
    monkeypatch.setattr(profiler_module, "PROFILE_LIMIT_S", 0.0)
    deadline_s = time.monotonic() + 10
    while not dashboard.of(Refused) + dashboard.of(Profiled) and time.monotonic() < deadline_s:
        training.driver.idle()
    assert dashboard.of(Refused)[0].kind == "no_profile"
    assert not torch.autograd._profiler_enabled()
    training.until(lambda until=training.steps + 5: training.steps > until)


def test_a_profile_is_refused_if_the_training_ends_in_it(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(profile(1, str(tmp_path / "trace.json"), steps=500))
    training.until(torch.autograd._profiler_enabled)
    training.driver.close()
    assert not torch.autograd._profiler_enabled()
    training.until(lambda: dashboard.gone)
    (refused,) = dashboard.of(Refused)
    assert refused.answers == (1,)
    assert refused.reason == "the training ended before 500 steps were traced"
    assert not list(tmp_path.glob("*trace*"))


def test_a_failure_of_gpudash_ends_a_profile(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(profile(1, str(tmp_path / "trace.json"), steps=10**6))
    training.until(torch.autograd._profiler_enabled)
    training.driver.failed("backward", ValueError("x"))
    assert not torch.autograd._profiler_enabled()
    training.until(lambda: dashboard.of("resumed"))
    assert dashboard.of(Refused)[0].answers == (1,)
    assert [one.why for one in dashboard.of("paused")] == ["profile"]


@pytest.mark.parametrize("at_work", [torch.autograd._profiler_enabled, is_counting])
def test_a_failure_on_another_thread_ends_a_profile_at_the_next_border(
    training, tmp_path, at_work, monkeypatch
) -> None:
    # by another test in this process: then no step would be counted
    monkeypatch.setattr(flops, "anything_compiled", lambda: False)
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(profile(1, str(tmp_path / "trace.json"), steps=10**6))
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
