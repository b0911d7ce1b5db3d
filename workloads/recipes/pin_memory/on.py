"""The losses stay the same. The two go together: neither helps without the other."""

import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=batch_size, pin_memory=True)
model = build_model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
losses = []
for images, targets in loader:
    images = images.to(device, non_blocking=True)
    targets = targets.to(device, non_blocking=True)
    optimizer.zero_grad()
    loss = criterion(model(images), targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
