"""The bytes and times of a step's collectives agree with those counted in torch.distributed."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
from torch import nn, zeros

from gpudash.instrument.collectives import MIB, BytesMoved, CollectiveTimes
from gpudash.script.gradient_sync import GradientSync
from gpudash.script.shards import PARAM_GROUP, hook_collectives
from tests.script import shards

UNKNOWN = {
    "gathered_by_the_script",
    "reduced_by_the_script",
    "tensor_parallel",
    "averaged_in_fp16_by_the_script",
    "averaged_by_the_script",
}
KNOWN = shards.SHAPES.keys() - UNKNOWN
BY_DDP = {shape for shape in shards.SHAPES if shape.startswith("averaged")}
UNTIMED = {"gathered_asynchronously", "copies_of_the_whole"}
"""Torch does not let us see where these begin or end."""
TIMED = KNOWN - BY_DDP - UNTIMED


@pytest.fixture(scope="module")
def results(results_of):
    """Return by shape the results of each rank."""
    each = results_of("shards")
    return {shape: [rank[shape] for rank in each] for shape in shards.SHAPES}


@pytest.mark.parametrize("shape", shards.SHAPES)
def test_each_step_is_counted_and_no_hook_fails(results, shape):
    for rank in results[shape]:
        assert (rank["failures"], rank["steps"]) == ([], shards.STEPS)


@pytest.mark.parametrize("shape", sorted(KNOWN))
def test_input_and_bus_bytes_of_each_step_are_reported(results, shape):
    for rank in results[shape]:
        _found, *steps = rank["moved"]
        for moved, counted, _times in steps:
            assert moved == pytest.approx(counted)


@pytest.mark.parametrize("shape", sorted(UNKNOWN))
def test_bytes_are_unknown_if_the_script_may_send_others(results, shape):
    for rank in results[shape]:
        assert all(moved == [None, None] for moved, _counted, _times in rank["moved"])


@pytest.mark.parametrize("shape", sorted(TIMED))
def test_the_time_of_each_steps_collectives_is_that_of_all_calls_and_within_the_step(
    results, shape
):
    for rank in results[shape]:
        _found, *steps = rank["moved"]
        for _moved, _counted, ms in steps:
            assert ms["counted"] <= ms["reported"] <= ms["step"]
            assert ms["exposed"] == pytest.approx(ms["reported"])  # on a CPU it waits for all


@pytest.mark.parametrize("shape", sorted(UNKNOWN | UNTIMED))
def test_the_time_is_unknown_if_a_collective_has_no_begin_or_end(results, shape):
    for rank in results[shape]:
        for _moved, _counted, ms in rank["moved"]:
            assert ms["exposed"] is None
            assert ms["reported"] is None or shape in BY_DDP


def test_a_layer_is_gathered_twice_and_its_gradients_are_scattered_once(results):
    rows_each = ((one, -(-len(one) // shards.RANKS)) for one in shards.Net().parameters())
    shard = sum(4 * rows * one[0].numel() for one, rows in rows_each) / MIB
    whole = shards.RANKS * shard
    for rank in results["each_layer"]:
        (put_in, on_bus), _counted, _times = rank["moved"][-1]
        assert put_in == pytest.approx(2 * shard + whole)
        assert on_bus == pytest.approx(3 * (whole - shard))


def test_tensor_parallelism_is_reported_as_unmeasured(results):
    for rank in results["tensor_parallel"]:
        assert "in part: tensor parallelism communicates" in rank["found"]
    for rank in results["each_layer"]:
        assert "tensor parallelism" not in rank["found"]


class Recorder:
    """Notes what is moved, and the borders of collectives that are timed."""

    def __init__(self, *, is_timed=False):
        self.moved, self.happened, self._is_timed = [], [], is_timed

    def tell(self, event, *moved):
        self.moved += moved
        if event == "communication: border":
            self.happened.append("border")
        return event == "communication: collectives begin" or self._is_timed


class Comm:
    """A double of torch's implementation of a collective."""

    __module__ = "torch.distributed.fsdp.anything"

    def __init__(self, happened=None):
        self._happened = [] if happened is None else happened

    def allocate(self):
        self._happened.append("allocate")

    def __call__(self):
        self._happened.append("collective")


class Group:
    def size(self):
        return 4


def gather(params, group, all_gather_comm, async_op=None):
    all_gather_comm.allocate()
    all_gather_comm()
    return SimpleNamespace(all_gather_output=zeros(4 * MIB // 4))


def reduce(
    params,
    reduce_scatter_group,
    reduce_scatter_comm,
    all_reduce_group,
    all_reduce_grads,
    all_reduce_hook,
):
    reduce_scatter_comm()
    if all_reduce_hook is not None:
        all_reduce_hook(zeros(1))
    return (zeros(MIB // 4), "more")


@pytest.fixture
def torchs(monkeypatch):
    """Return a function that makes a double of torch with these two functions."""

    def make(gather, reduce):
        place = ModuleType(PARAM_GROUP)
        place.foreach_all_gather, place.foreach_reduce = gather, reduce
        monkeypatch.setitem(sys.modules, PARAM_GROUP, place)
        return place

    return make


@pytest.fixture
def hooked(torchs):
    """Return a function that hooks such a double, and returns what notes."""

    def hook(gather=gather, *, is_timed=False):
        place, recorder = torchs(gather, reduce), Recorder(is_timed=is_timed)
        assert hook_collectives(recorder.tell)
        return place, recorder

    return hook


def test_the_borders_of_a_gather_are_right_beside_its_call(hooked):
    place, recorder = hooked(is_timed=True)
    place.foreach_all_gather([], Group(), all_gather_comm=Comm(recorder.happened))
    assert recorder.happened == ["allocate", "border", "collective", "border"]
    assert recorder.moved == [[BytesMoved(1.0, 3.0)]]


def test_an_all_reduce_ends_where_torch_calls_a_hook_behind_it(hooked):
    place, recorder = hooked(is_timed=True)
    place.foreach_reduce([], Group(), Comm(recorder.happened), Group(), True, None)
    assert recorder.happened == ["border", "collective", "border", "border"]
    assert recorder.moved == [[BytesMoved(1.0, 0.75), BytesMoved(0.25, 0.375)]]


def test_a_hook_of_the_scripts_remains(hooked):
    (place, recorder), seen = hooked(is_timed=True), []
    place.foreach_reduce([], Group(), Comm(recorder.happened), Group(), True, seen.append)
    assert len(seen) == 1
    assert recorder.moved == [None]


def test_a_torch_with_other_signatures_is_not_patched(torchs):
    def whole(params, reduce_group):
        """The argument has another name."""

    place = torchs(gather, whole)
    assert not hook_collectives(Recorder().tell)
    assert place.foreach_all_gather is gather
    assert place.foreach_reduce is whole


def test_an_unexpected_result_is_unknown_and_harmless(hooked):
    def gathers_else(params, group, all_gather_comm, async_op=None):
        return "else"

    place, recorder = hooked(gathers_else)
    assert place.foreach_all_gather([], Group(), Comm()) == "else"
    assert recorder.moved == [None]


def test_bytes_are_unknown_once_the_script_has_replaced_a_function(hooked):
    place, recorder = hooked()
    place.foreach_reduce = reduce
    assert not hook_collectives(recorder.tell)


class FSDPModule(nn.Linear):
    """Has the name of the class that fully_shard gives a module."""


class FullyShardedDataParallel(nn.Linear):
    """Has the name of the older FSDP."""


@pytest.mark.parametrize(
    ("kinds", "moved", "put_in"),
    [
        ([FSDPModule], BytesMoved(1.0, 3.0), 1.0),
        ([FSDPModule], None, None),  # the step was not measured
        ([FSDPModule, FullyShardedDataParallel], BytesMoved(1.0, 3.0), None),
    ],
)
def test_the_bytes_of_a_step_are_known_only_if_all_collectives_are_counted(
    torchs, kinds, moved, put_in
):
    torchs(gather, reduce)
    sync = GradientSync(Recorder().tell)
    sync.update([kind(2, 2) for kind in kinds])
    times = CollectiveTimes(5.0, 2.0)
    assert sync.collectives(times) == (None, None, None, None)
    sync.step_ends(moved)
    found = sync.collectives(times)
    assert (found.mib, found[2:]) == (put_in, times if put_in else (None, None))
    assert sync.collectives(None)[2:] == (None, None)


def test_nothing_is_counted_without_fully_shard(monkeypatch):
    monkeypatch.delitem(sys.modules, PARAM_GROUP, raising=False)
    assert not hook_collectives(Recorder().tell)
