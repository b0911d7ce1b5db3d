"""A profile in the worker's loop: traced steps train as all others, and count in no rate."""

from pathlib import Path
from typing import Any

import pytest
import torch

from gpudash.instrument.profiler import Profiler
from gpudash.protocol.commands import Pause, Plan, Profile
from gpudash.protocol.envelope import Event
from gpudash.protocol.inspections import Flops, Profiled, Weights
from gpudash.protocol.training import State
from tests.instrument.test_profiler import step_names
from tests.lives import is_turn
from tests.worker.in_process import ENTRY, SETTINGS, FakeEntry, Run, stop_when
from tests.workloads.trainings import weights
from workloads import CATALOGUE
from workloads.compute_options import ComputeOptions
from workloads.training import Training

has_gone_on = stop_when(lambda run, event: is_turn(event, run.events, "resumed"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


@pytest.mark.parametrize("pipelined", ["off", "on"])
def test_traced_steps_are_counted_and_not_reported(path: Path, pipelined: str) -> None:
    after = stop_when(lambda run, event: getattr(event, "steps", ()) and run.of(Profiled))
    run = Run(ENTRY, after, SETTINGS | {"pipelined": pipelined})
    run.until_stopped(Profile(id=1, steps=5, path=str(path)))
    (found,) = run.of(Profiled)
    traced = range(found.first_step, found.first_step + 5)
    assert (found.answers, found.steps, found.precision) == ((1,), 5, "fp32")
    assert step_names(path) == [f"ProfilerStep#{step}" for step in traced]
    assert not {step.step for step in run.steps} & set(traced)
    assert {step.segment for step in run.steps} == {0}
    assert run.of("finished")[0].after_step == run.training.trained_steps
    next_one = next(step for step in run.steps if step.step >= traced.stop)
    assert next_one.finished_s - next_one.step_ms / 1e3 >= found.at_s
    (paused,), (resumed,) = run.of("paused"), run.of("resumed")
    assert paused.why == "profile"
    assert paused.at_s < found.at_s <= resumed.at_s


def test_a_profile_has_the_size_of_the_optimizers_weights(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1 << 18, requires_grad=True)])
    monkeypatch.setattr(Training, "owned", lambda _self: ([], [optimizer]))
    run = Run(ENTRY, has_gone_on).until_stopped(Profile(id=1, steps=1, path=str(path)))
    assert run.of(Profiled)[0].weights == Weights(mib=1.0, state_mib=0.0)


def test_a_command_ends_a_profile_with_the_steps_so_far(path: Path) -> None:
    def react(run: Run, event: Event) -> None:
        if isinstance(event, State) and event.why == "profile":
            run.send(Pause(id=2))
        if isinstance(event, State) and event.why == "asked":
            run.stop()

    run = Run(ENTRY, react).until_stopped(Profile(id=1, steps=10**6, path=str(path)))
    assert 1 <= run.of(Profiled)[0].steps < 10**6


def test_a_profile_ends_with_the_plan(path: Path) -> None:
    run = Run(ENTRY, plan=Plan(workload="fake", settings={}, steps=4))
    run.until_stopped(Profile(id=1, steps=10, path=str(path)))
    assert run.of("finished")[0].after_step == 4
    assert run.of(Profiled)[0].steps < 4


def test_with_a_cuda_graph_no_flops_are_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ComputeOptions, "refusal", lambda *_: None)
    ones = torch.ones(8, 8)
    entry = FakeEntry(during={"prepare": lambda _values: ones.mm(ones)})

    def flops(graph: str) -> Flops | None:
        run = Run(entry, has_gone_on, SETTINGS | {"cuda_graph": graph})
        run.until_stopped(Profile(id=1, steps=2, path=str(path)))
        return run.of(Profiled)[0].flops

    gflop = 2 * 8**3 / 1e9
    assert flops("off") == Flops(step_gflop=gflop, covered_pct=100, phases_gflop={"prepare": gflop})
    assert flops("on") is None


@pytest.mark.parametrize("pipelined", ["off", "on"])
def test_a_profile_changes_no_bit_of_the_weights(path: Path, pipelined: str) -> None:
    def trained(*commands: Profile) -> list[torch.Tensor]:
        torch.manual_seed(0)
        plan = Plan(workload="encdec", settings={}, steps=8)
        run = Run(CATALOGUE["encdec"], settings=SETTINGS | {"pipelined": pipelined}, plan=plan)
        run.until_stopped(*commands)
        assert len(run.of(Profiled)) == len(commands)
        return weights(run.training)

    profiled = trained(Profile(id=1, steps=4, path=str(path)))
    for one, other in zip(profiled, trained(), strict=True):
        assert torch.equal(one, other)


def test_memory_used_by_a_profile_is_in_no_peak(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    end = Profiler.end

    def ended(profiler: Profiler, *args: Any) -> Profiled:
        order.append("measured")
        return end(profiler, *args)

    monkeypatch.setattr(Profiler, "end", ended)
    monkeypatch.setattr(
        "gpudash.worker.workload_training.reset_peak", lambda _device: order.append("reset")
    )
    Run(ENTRY, has_gone_on).until_stopped(Profile(id=1, steps=2, path=str(path)))
    assert order == ["measured", "reset"]
