"""PyTorch's default for convolutions. Ten bits of mantissa instead of 23: losses differ
slightly."""

import torch
from torch.utils.data import DataLoader

torch.backends.cudnn.conv.fp32_precision = "tf32"
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
