"""The losses stay the same. Objects that are there before are never looked at again."""

import gc

import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=batch_size)
model = build_model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
gc.collect()
gc.freeze()
losses = []
for images, targets in loader:
    images, targets = images.to(device), targets.to(device)
    optimizer.zero_grad()
    loss = criterion(model(images), targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
