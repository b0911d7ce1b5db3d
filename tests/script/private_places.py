"""What of the table of private places the torch of this Python lacks, and what of objects.

Also run as a script, by a Python where gpudash is not installed: `private_places.py INJECT`.
"""

import importlib
import sys
import tempfile
from contextlib import suppress

import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset


def made():
    """Return an object for each owner whose names only its objects have."""
    rows = TensorDataset(torch.ones(2))
    loader = DataLoader(rows)
    found = {
        "torch.nn.Module()": nn.Linear(1, 1),
        "torch.Tensor()": torch.ones(1),
        "torch.autograd.Node()": torch.ones(1, requires_grad=True).exp().grad_fn,
        "torch.utils.data.DataLoader()": loader,
        "torch.utils.data.dataloader._SingleProcessDataLoaderIter()": iter(loader),
        "torch.optim.SGD()": torch.optim.SGD([nn.Parameter(torch.ones(1))], fused=True),
        "torch._ops.OpOverload()": torch.ops.aten.mm.default,
        "torch.autocast()": torch.autocast("cpu"),
        "torch._dynamo.eval_frame.OptimizedModule()": torch.compile(nn.Linear(1, 1)),
    }
    workers = iter(DataLoader(rows, num_workers=1))
    found["torch.utils.data.dataloader._MultiProcessingDataLoaderIter()"] = workers
    list(workers)
    with tempfile.TemporaryDirectory() as folder:
        store = distributed.FileStore(f"{folder}/store", 1)
        distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        shared = nn.parallel.DistributedDataParallel(nn.Linear(1, 1))
        found["torch.nn.parallel.DistributedDataParallel()"] = shared
        distributed.destroy_process_group()
    with suppress(ImportError):  # before torch 2.6 fully_shard is elsewhere
        from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState

        found["torch.distributed.fsdp._fully_shard._fsdp_state.FSDPState()"] = FSDPState()
    from torch.distributed.tensor import DTensor

    found["torch.distributed.tensor.DTensor()"] = DTensor  # its objects have slots
    return found


def lacking(table, *, needed=False):
    """Return the names that are missing, each as `owner.name`; `needed`: of what must be there."""
    objects, found = made(), []
    for place in table.PLACES:
        if needed and place.without != table.NEEDED:
            continue
        if place.owner in objects:
            owner = objects[place.owner]
        else:
            with suppress(ImportError):
                importlib.import_module(place.owner)
            owner = table.find(place.owner)
        found += [f"{place.owner}.{name}" for name in place.names if not hasattr(owner, name)]
    return found


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    from _gpudash.instrument import private_torch

    print("\n".join(lacking(private_torch)))
    sys.exit(", ".join(lacking(private_torch, needed=True)) or None)
