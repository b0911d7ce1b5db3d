"""Several ranks; after some steps the last one waits until a file exists."""

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
RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def load(step, file):
    if step == LATE_AT and RANK == WORLD_SIZE - 1:
        while not file.exists():
            time.sleep(0.02)
    return torch.randn(8, 16)


def train(file):
    distributed.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        batch = load(step, file)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        time.sleep(0.02)
    distributed.barrier()
    distributed.destroy_process_group()
    if RANK == 0:
        print("trained on", flush=True)


if __name__ == "__main__":
    train(Path(sys.argv[1]))
