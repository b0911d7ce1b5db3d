"""Runs trainings of four ranks on gloo. It prints the bytes and the time reported for each step's
collectives, and those counted in torch.distributed itself."""

import time
from contextlib import nullcontext
from functools import partial, wraps
from inspect import signature

import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from tests.script.ranks import also, main, on_cpu

RANKS = 4
STEPS = 3
MIB = 2**20
SHAPES = {}
CALLED = []
"""For each collective since the newest step: MiB that this rank put in, MiB on the bus, and ms."""


def counted(name, what, bus):
    """Count what goes into this function of torch.distributed, if this torch has it."""
    function = getattr(distributed, name, None)
    if function is None:
        return

    @wraps(function)
    def counting(*args, **kwargs):
        called = signature(function).bind(*args, **kwargs).arguments
        mib = called[what].nbytes / MIB
        bus_mib = mib * bus(distributed.get_world_size(called.get("group")))
        began_s = time.monotonic()
        try:
            return function(*args, **kwargs)
        finally:
            CALLED.append((mib, bus_mib, (time.monotonic() - began_s) * 1e3))

    setattr(distributed, name, counting)


for name in ("all_gather_single", "all_gather_into_tensor"):
    counted(name, "input_tensor", lambda ranks: ranks - 1)
for name in ("reduce_scatter_single", "reduce_scatter_tensor"):
    counted(name, "input", lambda ranks: (ranks - 1) / ranks)
counted("all_reduce", "tensor", lambda ranks: 2 * (ranks - 1) / ranks)


def noted(function, toy):
    CALLED.clear()
    steps = []
    also(toy, lambda: note(toy, steps))
    function()
    return {"moved": steps}


def shapes(**functions):
    SHAPES.update((name, partial(noted, one)) for name, one in functions.items())


def shape(function):
    shapes(**{function.__name__: function})


def note(toy, steps):
    toy.tracker.meter.clock._collectives_every_s = 0.0  # time each step from now on
    found = toy.tracker.collectives()
    *counted, ms = [sum(each) for each in zip(*CALLED, strict=True)]
    times = {"reported": found.ms, "exposed": found.exposed_ms, "counted": ms}
    if toy.records:
        times["step"] = toy.records[-1].step_ms
    steps.append(((found.mib, found.bus_mib), counted, times))
    CALLED.clear()


def mesh(*shape):
    return init_device_mesh("cpu", shape, mesh_dim_names=("copies", "shards"))


class Net(nn.Sequential):
    """Most weights have rows that four ranks cannot share equally, so shards are padded."""

    def __init__(self):
        super().__init__(nn.Linear(8, 18), nn.Linear(18, 18), nn.Linear(18, 2))


def sharded(model=None, **options):
    model, options = model or Net(), {"mesh": on_cpu()} | options
    for layer in (*model, model):
        fully_shard(layer, **options)
    return model


def train(model, passes=1, before=lambda model, number: nullcontext()):
    """Train with `passes` backward passes a step; `before` is a context around each pass."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        for number in range(passes):
            with before(model, number) or nullcontext():
                model(torch.randn(2, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


HALF = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
shapes(
    each_layer=lambda: train(sharded()),
    gathered_once=lambda: train(sharded(reshard_after_forward=False)),
    gathered_from_half_the_ranks=lambda: train(sharded(reshard_after_forward=2)),
    mixed_precision=lambda: train(sharded(mp_policy=HALF)),
    copies_of_two_shards=lambda: train(sharded(mesh=mesh(2, 2))),
    copies_of_the_whole=lambda: train(sharded(mesh=mesh(RANKS, 1))),
    # the last of three passes sends
    accumulated=lambda: train(
        sharded(), 3, lambda model, number: model.set_requires_gradient_sync(number == 2)
    ),
    # each pass scatters; only the last one is averaged over the copies
    accumulated_in_shards=lambda: train(
        sharded(mesh=mesh(2, 2)),
        3,
        lambda model, number: model.set_requires_all_reduce(number == 2),
    ),
)


@shape
def prefetched():
    model = sharded()
    first, second, third = model
    first.set_modules_to_forward_prefetch([second, third])
    third.set_modules_to_backward_prefetch([second, first])
    train(model)


@shape
def gathered_asynchronously():
    model = sharded()
    for one in (*model, model):
        one._set_unshard_async_op(async_op=True)
    train(model)


@shape
def evaluated_between():
    """Gathers for an evaluation, before the last step, are no part of a step."""
    begun = []

    def evaluate(model, number):
        begun.append(number)
        if len(begun) != STEPS - 1:
            return
        model.eval()
        with torch.no_grad():
            model(torch.randn(2, 8))
        model.train()
        CALLED.clear()

    train(sharded(), before=evaluate)


class OwnAllGather(DefaultAllGather):
    """An implementation of the script's, which might compress its input."""


@shape
def gathered_by_the_script():
    model = sharded()
    model[0].set_custom_all_gather(OwnAllGather())
    train(model)


@shape
def reduced_by_the_script():
    model = sharded()
    model[0].set_all_reduce_hook(lambda gradients: None)
    train(model)


@shape
def tensor_parallel():
    both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("shards", "tensors"))
    split = {"1": ColwiseParallel(), "2": RowwiseParallel()}
    train(sharded(parallelize_module(Net(), both["tensors"], split), mesh=both["shards"]))


def replicated(hook, group=None, **options):
    model = DistributedDataParallel(Net(), **options)
    model.register_comm_hook(group, hook)
    train(model)


shapes(
    averaged_in_bf16=lambda: replicated(default_hooks.bf16_compress_hook),
    averaged_in_fp16_by_the_script=lambda: replicated(
        default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)
    ),
)


@shape
def averaged_by_the_script():
    def bf16_compress_hook(state, bucket):
        """A hook with the name of one of torch's."""
        return default_hooks.allreduce_hook(state, bucket)

    bf16_compress_hook.__qualname__ = "bf16_compress_hook"
    replicated(bf16_compress_hook)


@shape
def averaged_over_two():
    pairs = [distributed.new_group(pair) for pair in ([0, 1], [2, 3])]
    replicated(default_hooks.allreduce_hook, pairs[distributed.get_rank() // 2])


if __name__ == "__main__":
    main(SHAPES, RANKS)
