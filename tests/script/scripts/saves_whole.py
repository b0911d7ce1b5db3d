"""Saves the model whole in mid-training, copies it, loads it back: `model.pt` in the folder."""

import copy

import torch
from digits import classifier, digits
from ending import say
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

torch.manual_seed(0)
model = classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step, (images, answers) in enumerate(DataLoader(digits(), batch_size=32, shuffle=True)):
    optimizer.zero_grad()
    loss = cross_entropy(model(images), answers)
    loss.backward()
    optimizer.step()
    if step == 15:
        torch.save(model, "model.pt")
        average = copy.deepcopy(model)
loaded = torch.load("model.pt", weights_only=False)
pairs = zip(loaded.parameters(), average.parameters(), strict=True)
same = all(torch.equal(a, b) for a, b in pairs)
print(f"loaded as it was saved: {same}, loss {loss.item():.4f}")
say(step + 1, model, loaded, average)
