"""Sums in another order: the losses differ by rounding."""

import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=batch_size)
model = build_model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
torch.set_num_threads(N)
losses = []
for images, targets in loader:
    images, targets = images.to(device), targets.to(device)
    optimizer.zero_grad()
    loss = criterion(model(images), targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
