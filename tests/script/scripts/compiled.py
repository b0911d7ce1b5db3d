"""A model wrapped by torch.compile, without graph breaks."""

import torch
from digits import classifier, digits
from ending import say
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

torch.manual_seed(0)
model = classifier()
fast = torch.compile(model, backend="aot_eager", fullgraph=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
steps = 0
for images, answers in DataLoader(digits(), batch_size=32, shuffle=True):
    optimizer.zero_grad()
    loss = cross_entropy(fast(images), answers)
    loss.backward()
    optimizer.step()
    steps += 1
print(f"loss {loss.item():.4f}")
say(steps, model)
