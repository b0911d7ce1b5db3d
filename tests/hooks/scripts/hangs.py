"""Ranks of which the last one, after some steps, is late or dies, once a file is there."""

import os
import sys
import time
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

STEPS, LATE_AT = 60, 40
RANK, WORLD_SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def load(step, how, file):
    if step == LATE_AT and how == "late" and RANK == WORLD_SIZE - 1:
        while not file.exists():
            time.sleep(0.02)
    if step == LATE_AT and how == "dies" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        while not (file.exists() and RANK == WORLD_SIZE - 1):
            time.sleep(0.02)
        os._exit(1)
    return torch.randn(8, 16)


def train(how, file):
    model = torch.nn.Linear(16, 16)
    # gloo does not always find its peers again after torchrun's restart
    together = how == "late" and WORLD_SIZE > 1
    if together:
        distributed.init_process_group("gloo")
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        batch = load(step, how, file)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        time.sleep(0.02)
    if together:
        distributed.barrier()
        distributed.destroy_process_group()
    if RANK == 0:
        print("trained on", flush=True)


if __name__ == "__main__":
    train(sys.argv[1], Path(sys.argv[2]))
