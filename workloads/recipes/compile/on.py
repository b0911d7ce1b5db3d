"""Losses differ by rounding. The first step compiles, and so does each new shape:
drop_last=True in the DataLoader avoids one. Without the option, the compiler may choose
channels_last by itself."""

import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=batch_size)
model = build_model().to(device)
options = {"layout_optimization": False}
model = torch.compile(model, dynamic=False, options=options)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
losses = []
for images, targets in loader:
    images, targets = images.to(device), targets.to(device)
    optimizer.zero_grad()
    loss = criterion(model(images), targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
