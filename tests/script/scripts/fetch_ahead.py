"""A loader that takes its next batch before it hands out this one, and a wrapped optimizer."""

import torch
from digits import classifier, digits
from ending import say
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader


class Prepared:
    """A loader or an optimizer wrapped by a framework."""

    def __init__(self, inner):
        self.inner = inner

    def __iter__(self):
        batches = iter(self.inner)
        current = next(batches)
        for coming in batches:
            yield current
            current = coming
        yield current

    def __getattr__(self, name):
        return getattr(self.inner, name)


torch.manual_seed(0)
model = classifier()
optimizer = Prepared(torch.optim.AdamW(model.parameters(), lr=1e-3))
steps = 0
for images, answers in Prepared(DataLoader(digits(), batch_size=32, shuffle=True)):
    loss = cross_entropy(model(images), answers)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    steps += 1
print(f"loss {loss.item():.4f}")
say(steps, model)
