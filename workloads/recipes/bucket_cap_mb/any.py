"""Start it with torchrun, a process for each GPU. The first bucket is smaller: 1 MiB."""

import torch
from torch.distributed import init_process_group
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

init_process_group()
sampler = DistributedSampler(dataset, shuffle=False)
loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)
model = build_model().to(device)
model = DistributedDataParallel(model, bucket_cap_mb=N)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
losses = []
for images, targets in loader:
    images, targets = images.to(device), targets.to(device)
    optimizer.zero_grad()
    loss = criterion(model(images), targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
