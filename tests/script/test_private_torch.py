"""Private parts of torch that the hooks rely on; each name says what breaks without it."""

import ast
import copy
import importlib
import inspect
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import dataloader

import gpudash
from gpudash.instrument import private_torch
from gpudash.instrument.private_torch import NEEDED, PLACES, Place
from gpudash.instrument.uncompiled import uncompiled
from gpudash.script import hooked_methods
from gpudash.script.roots import CALL_ATTRIBUTE
from gpudash.script.tracker import NO_TASK

from .private_places import lacking

PACKAGES = ("instrument", "levers", "script", "training")
SOURCES = {
    path: path.read_text(encoding="utf-8")
    for folder in PACKAGES
    for path in (Path(gpudash.__file__).parent / folder).glob("*.py")
    if path.name != "private_torch.py"
}
PYTHONS = {"_add_filter", "_current_frames", "_getframe", "_replace"}
"""Names with an underscore that are Python's, documented most of them."""
OLDER = {
    "torch._C._dynamo.eval_frame.skip_code",
    "torch.distributed.fsdp._fully_shard._fsdp_state.FSDPState()._fsdp_param_group",
}
"""What newer versions of torch have another name for."""
TORCH = tuple(map(int, torch.__version__.split(".")[:2]))


# ── the table ───────────────────────────────────────────────────────────────────────────


def test_this_torch_has_all_places_that_are_needed():
    assert lacking(private_torch, needed=True) == []


@pytest.mark.skipif(TORCH < (2, 15), reason="some places came with torch 2.15")
def test_a_new_torch_has_all_places_of_the_table():
    assert set(lacking(private_torch)) <= OLDER


def used_privately(source):
    """Return the private names of others that a module takes: attributes and imports."""
    tree = ast.parse(source)
    own = {
        node.attr if isinstance(node, ast.Attribute) else node.name
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls"))
        or isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
            found |= {str(one.value) for one in node.args[1:2] if isinstance(one, ast.Constant)}
    return {one for one in found - own if re.match("_[^_]", one)}


def test_every_private_name_of_torchs_that_is_used_stands_in_the_table():
    listed = {word for place in PLACES for one in place.names for word in (one, *words(place))}
    for path, source in SOURCES.items():
        assert used_privately(source) - listed - PYTHONS == set(), path.name


def words(place):
    return place.owner.removesuffix("()").split(".")


def test_every_name_in_the_table_is_used():
    everything = "\n".join(SOURCES.values())
    unused = {
        one for place in PLACES for one in place.names if not re.search(rf"\b{one}\b", everything)
    }
    assert unused <= {"conv", "rnn", "is_available"}  # asked for in the table's own module


def test_a_torch_without_a_place_that_is_needed_is_refused_in_a_line(monkeypatch):
    private_torch.check()
    monkeypatch.setattr(private_torch, "PLACES", (Place("torch.nn.Module", ("_gone",), NEEDED),))
    with pytest.raises(NotImplementedError, match=r"^not with torch \d.*: it has no torch.*_gone$"):
        private_torch.check()


# ── what they do ────────────────────────────────────────────────────────────────────────


def test_a_modules_call_looks_for_another_first_or_no_forward_is_seen():
    module = nn.Linear(2, 2)
    module.__dict__[CALL_ATTRIBUTE] = lambda *_: "ours"
    assert module(torch.ones(2)) == "ours"


def test_pickle_and_copies_drop_a_modules_hook_or_a_saved_model_needs_gpudash():
    module = nn.Linear(2, 2)
    module.__dict__[CALL_ATTRIBUTE] = lambda *_: "ours"
    assert CALL_ATTRIBUTE not in module.__getstate__()
    assert isinstance(copy.deepcopy(module)(torch.ones(2)), torch.Tensor)


def test_a_module_has_its_own_call_or_the_model_cannot_be_called():
    assert nn.Linear(2, 2)._call_impl(torch.ones(2)).shape == (2,)


def test_tensors_look_their_backward_up_or_no_backward_pass_is_seen(monkeypatch):
    seen = []
    monkeypatch.setattr(torch.autograd, "backward", lambda *_, **__: seen.append(1))
    torch.ones((), requires_grad=True).backward()
    assert seen == [1]


def test_every_iterator_of_a_loader_is_one_of_this_class_or_no_batch_is_seen():
    base = dataloader._BaseDataLoaderIter
    rows = torch.utils.data.TensorDataset(torch.ones(2))
    iterator = iter(torch.utils.data.DataLoader(rows))
    assert isinstance(iterator, base)
    assert type(iterator).__next__ is base.__next__
    assert [*inspect.signature(base.__init__).parameters][:2] == ["self", "loader"]


def test_a_thread_can_ask_whether_it_runs_a_backward_pass_or_other_threads_count():
    weight = nn.Parameter(torch.ones(()))
    seen = []
    weight.register_post_accumulate_grad_hook(
        lambda _: seen.append(torch._C._current_graph_task_id())
    )
    weight.square().backward()
    assert seen[0] != NO_TASK == torch._C._current_graph_task_id()


def test_optimizers_hand_the_closure_on_or_the_optimizer_phase_is_too_long():
    seen = []
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))])
    optimizer.register_step_pre_hook(lambda _, args, kwargs: seen.append((len(args), [*kwargs])))
    optimizer.step()
    optimizer.step(lambda: 1.0)
    optimizer.step(closure=lambda: 1.0)
    assert seen == [(1, []), (2, []), (1, ["closure"])]


def test_the_compiler_can_be_kept_out_or_compiled_optimizers_are_not_measured():
    from torch._C._dynamo import eval_frame

    assert hasattr(eval_frame, "set_code_exec_strategy")
    assert uncompiled(lambda: 1)() == 1


def test_graphs_are_captured_and_replayed_by_these_or_replays_are_no_steps():
    assert {"capture_begin", "capture_end", "replay"} <= vars(torch.cuda.CUDAGraph).keys()


def test_a_profiler_shows_whether_it_has_begun_or_ours_crashes_one_that_warms_up():
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    profile.prepare_trace()
    begun = profile.profiler.entered, profile.profiler.kineto_results
    profile.start_trace()
    profile.stop_trace()
    assert begun == (True, None)
    assert profile.profiler.kineto_results is not None


def test_ddp_shows_whether_the_next_backward_pass_sends_or_silent_passes_count_as_communication():
    source = inspect.getsource(nn.parallel.DistributedDataParallel)
    assert "self.require_forward_param_sync = False" in source
    assert callable(nn.parallel.DistributedDataParallel._get_ddp_logging_data)


@pytest.mark.parametrize("place", hooked_methods.WAITS)
def test_torch_waits_for_other_processes_in_these_methods_or_waits_count_as_work(place):
    module, kind, names = place
    found = getattr(importlib.import_module(module), kind)
    assert all(callable(getattr(found, name)) for name in names)


def test_no_hooks_means_none_or_each_watched_gradient_costs_a_call_for_good():
    parameter = nn.Parameter(torch.ones(1))
    parameter.register_hook(lambda _: 1 / 0)
    parameter._backward_hooks = None
    parameter.sum().backward()
    assert parameter.grad == 1


def test_the_compiler_shows_whether_it_traces_backward_passes_or_they_are_compiled_again():
    from torch._dynamo import compiled_autograd, config

    assert compiled_autograd.compiled_autograd_enabled is False
    assert config.compiled_autograd is False


def test_recording_can_be_switched_off_or_forked_children_record_for_good():
    assert callable(torch.autograd._enable_record_function)


def test_autograd_numbers_its_operations_or_samples_without_a_loader_are_unknown():
    before = torch._C._autograd._get_sequence_nr()
    computed = nn.Linear(2, 2)(torch.ones(2))
    after = torch._C._autograd._get_sequence_nr()
    loss = computed.sum()
    assert before <= computed.grad_fn._sequence_nr() < after <= loss.grad_fn._sequence_nr()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


def test_functions_of_a_script_have_such_a_number_too_or_samples_are_unknown():
    before = torch._C._autograd._get_sequence_nr()
    assert Doubled.apply(torch.ones(2, requires_grad=True)).grad_fn._sequence_nr() >= before
