"""The same kernels in the same order: the losses stay the same. On a CPU it changes nothing."""

import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=batch_size)
model = build_model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
losses = []
for images, targets in loader:
    images, targets = images.to(device), targets.to(device)
    optimizer.zero_grad()
    loss = criterion(model(images), targets)
    with torch.autograd.set_multithreading_enabled(False):
        loss.backward()
    optimizer.step()
    losses.append(loss.detach())
