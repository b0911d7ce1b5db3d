"""An optimizer that calls the model itself, many times a step."""

import torch
from ending import say
from torch import nn
from torch.nn.functional import mse_loss

torch.set_num_threads(1)
torch.manual_seed(0)
times = torch.linspace(0, 20, 200, dtype=torch.float64).unsqueeze(1)
waves = torch.sin(times)
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
model.double()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5)


def closure():
    optimizer.zero_grad()
    loss = mse_loss(model(times), waves)
    loss.backward()
    return loss


for step in range(8):
    optimizer.step(closure)
    with torch.no_grad():
        print(f"step {step}: loss {mse_loss(model(times), waves).item():.6f}")
say(8, model)
