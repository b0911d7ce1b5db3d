"""A model that is compiled in place, after its first eight steps."""

import torch
from digits import classifier, digits
from ending import say
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

torch.manual_seed(0)
model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step, (images, answers) in enumerate(DataLoader(digits(), batch_size=32, shuffle=True)):
    if step == 8:
        model.compile(backend="aot_eager", fullgraph=True)
    optimizer.zero_grad()
    loss = cross_entropy(model(images), answers)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
say(step + 1, model)
