"""Call it before the model is built. It makes runs alike, not bitwise equal: on a GPU that
needs torch.use_deterministic_algorithms(True) too."""

import torch
from torch.utils.data import DataLoader

torch.manual_seed(N)
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
