"""The losses stay the same: the same batches in the same order. Only what needs no trained
weights may run ahead: the copy, augmentation, a frozen encoder."""

from itertools import chain

import torch
from torch.utils.data import DataLoader

training = torch.cuda.Stream(priority=-1)  # preparing fills its gaps
preparing = torch.cuda.Stream()
torch.cuda.set_stream(training)
loader = DataLoader(dataset, batch_size=batch_size, pin_memory=True)
model = build_model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
losses = []
prepared = None
for batch in chain(loader, [None]):  # one turn more for the last
    training.wait_stream(preparing)  # it reads what was prepared
    preparing.wait_stream(training)  # its memory is free once read
    if prepared is not None:
        images, targets = prepared
        optimizer.zero_grad()
        loss = criterion(model(images), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    if batch is not None:
        with torch.cuda.stream(preparing), torch.no_grad():
            prepared = [t.to(device, non_blocking=True) for t in batch]
