"""Two ranks, forked after torch is imported; after some steps the last one waits for a file."""

import os
import sys
import time
from pathlib import Path

from gpudash.imports import without_collecting

with without_collecting():
    import torch
    import torch._dynamo  # as the optimizer does
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

STEPS, LATE_AT = 60, 40
WORLD_SIZE = 2


def load(step, file):
    if step == LATE_AT and distributed.get_rank():
        while not file.exists():
            time.sleep(0.02)
    return torch.randn(8, 16)


def train(file, rank):
    torch.set_num_threads(1)
    store = distributed.FileStore(f"{file}.store", WORLD_SIZE)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=WORLD_SIZE)
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        batch = load(step, file)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        time.sleep(0.02)
    distributed.barrier()
    print("trained on" if rank == 0 else "", flush=True)


if __name__ == "__main__":
    rank = 0 if os.fork() else 1
    os.environ["RANK"] = str(rank)
    train(Path(sys.argv[1]), rank)
    distributed.destroy_process_group()  # DDP is freed: as the last owner it may wait for ever
