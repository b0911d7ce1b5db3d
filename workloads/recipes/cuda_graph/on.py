"""The losses stay the same. Every shape must stay as it was recorded, so use drop_last=True;
nothing in the step may read a value on the host, as .item() does. Adam needs
capturable=True."""

import torch
from torch.utils.data import DataLoader


def step(images, targets):
    optimizer.zero_grad()
    loss = criterion(model(images), targets)
    loss.backward()
    optimizer.step()
    return loss.detach()


stream = torch.cuda.Stream()  # the default one cannot be recorded
torch.cuda.set_stream(stream)
loader = DataLoader(dataset, batch_size=batch_size)
model = build_model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
losses = []
graph = None
for images, targets in loader:
    images, targets = images.to(device), targets.to(device)
    if len(losses) < 3:  # eagerly: cuDNN and cuBLAS choose kernels
        losses.append(step(images, targets))
        continue
    if graph is None:  # recording trains on nothing
        inputs, labels = images.clone(), targets.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            loss = step(inputs, labels)
    inputs.copy_(images)
    labels.copy_(targets)
    graph.replay()
    losses.append(loss.clone())  # the next replay overwrites it
