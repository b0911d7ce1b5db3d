"""Convolutions keep all bits of float32. Matrix products do so by default."""

import torch
from torch.utils.data import DataLoader

torch.backends.cudnn.conv.fp32_precision = "ieee"
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
