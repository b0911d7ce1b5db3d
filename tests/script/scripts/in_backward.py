"""An optimizer for each weight, which steps inside the backward pass."""

import torch
from digits import classifier, digits
from ending import say
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

torch.manual_seed(0)
model = classifier()
optimizers = {weight: torch.optim.SGD([weight], lr=0.05) for weight in model.parameters()}


def step(weight):
    optimizers[weight].step()
    optimizers[weight].zero_grad()


for weight in model.parameters():
    weight.register_post_accumulate_grad_hook(step)
steps = 0
for images, answers in DataLoader(digits(), batch_size=32, shuffle=True):
    loss = cross_entropy(model(images), answers)
    loss.backward()
    steps += 1
print(f"loss {loss.item():.4f}")
say(steps, model)
