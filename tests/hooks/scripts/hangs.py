"""Ranks under torchrun of which the last one, after some steps, is late in one of several ways."""

import os
import sys
import time

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

STEPS, LATE_AT = 60, 40


def load(step, how, late_s):
    if step == LATE_AT and int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
        first_time = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        if how == "late":
            time.sleep(late_s)
        elif how == "dies" and first_time:
            os._exit(1)
    return torch.randn(8, 16)


def train(how, late_s):
    model = torch.nn.Linear(16, 16)
    waits = how != "dies"  # gloo does not always find its peers again after torchrun's restart
    if waits:
        distributed.init_process_group("gloo")
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        batch = load(step, how, late_s)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        time.sleep(0.02)
    if waits:
        distributed.barrier()
    if os.environ["RANK"] == "0":
        print("trained on", flush=True)
    if waits:
        distributed.destroy_process_group()


if __name__ == "__main__":
    train(sys.argv[1], float(sys.argv[2]))
