"""The losses stay the same. NODE is in numa_node of the GPU's folder in /sys/bus/pci/devices."""

import os
from pathlib import Path

import torch
from torch.utils.data import DataLoader

cores = set()
listed = Path(f"/sys/devices/system/node/node{NODE}/cpulist").read_text()
for part in listed.split(","):
    first, _, last = part.partition("-")
    cores |= set(range(int(first), int(last or first) + 1))
os.sched_setaffinity(0, cores)
loader = DataLoader(dataset, batch_size=batch_size)
model = build_model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
losses = []
for images, targets in loader:
    images, targets = images.to(device), targets.to(device)
    optimizer.zero_grad()
    loss = criterion(model(images), targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
