"""Private parts of torch that the hooks rely on: all stand in a table, and torch has them."""

import ast
import inspect
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import gpudash
from gpudash.instrument import private_torch
from gpudash.instrument.private_torch import NEEDED, PLACES, Place

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
    owners = {word for place in PLACES for word in place.owner.removesuffix("()").split(".")}
    listed = owners.union(*(place.names for place in PLACES))
    for path, source in SOURCES.items():
        assert used_privately(source) - listed - PYTHONS == set(), path.name


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
