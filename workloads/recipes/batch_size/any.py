"""The loss is a mean over the batch: another batch size may need another learning rate."""

import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=N)
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
