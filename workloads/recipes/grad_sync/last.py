"""Start it with torchrun, a process for each GPU. A step has four backward passes."""

from contextlib import nullcontext

import torch
from torch.distributed import init_process_group
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

init_process_group()
sampler = DistributedSampler(dataset, shuffle=False)
loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)
model = build_model().to(device)
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
losses = []
for number, (images, targets) in enumerate(loader, 1):
    images, targets = images.to(device), targets.to(device)
    is_last = number % 4 == 0
    with nullcontext() if is_last else model.no_sync():
        loss = criterion(model(images), targets) / 4
        loss.backward()
    losses.append(loss.detach())
    if is_last:
        optimizer.step()
        optimizer.zero_grad()
