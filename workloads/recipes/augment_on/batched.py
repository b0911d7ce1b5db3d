"""The batch at once. torchvision's random transforms then draw once for all its images: draw a
parameter per image, as rotation=batched applies it."""

import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=batch_size)
model = build_model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
losses = []
for images, targets in loader:
    images, targets = images.to(device), targets.to(device)
    with torch.no_grad():
        images = augment(images)  # (B, 3, H, W) on the device
    optimizer.zero_grad()
    loss = criterion(model(images), targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
