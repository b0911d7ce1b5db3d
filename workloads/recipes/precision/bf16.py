"""The weights stay float32. Eight bits of precision in convolutions and matrix products: losses
differ, check that the training still converges. bfloat16 needs no GradScaler; float16 does."""

import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=batch_size)
model = build_model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
losses = []
for images, targets in loader:
    images, targets = images.to(device), targets.to(device)
    optimizer.zero_grad()
    with torch.autocast(device.type, dtype=torch.bfloat16):
        loss = criterion(model(images), targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
