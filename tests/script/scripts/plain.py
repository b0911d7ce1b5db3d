"""A DataLoader, a model, an optimizer. `python plain.py [epochs]`"""

import sys

import torch
from digits import classifier, digits
from ending import say
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

torch.manual_seed(0)
model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)
loader = DataLoader(digits(), batch_size=32, shuffle=True)
steps = 0
for epoch in range(int(sys.argv[1]) if len(sys.argv) > 1 else 2):
    for images, answers in loader:
        optimizer.zero_grad()
        loss = cross_entropy(model(images), answers)
        loss.backward()
        optimizer.step()
        steps += 1
    scheduler.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
say(steps, model)
