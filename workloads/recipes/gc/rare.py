"""The losses stay the same. Cycles of objects live longer, and memory with them."""

import gc

import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=batch_size)
model = build_model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
youngest, *others = gc.get_threshold()
gc.set_threshold(100 * youngest, *others)
losses = []
for images, targets in loader:
    images, targets = images.to(device), targets.to(device)
    optimizer.zero_grad()
    loss = criterion(model(images), targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
