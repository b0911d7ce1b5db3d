"""Click prediction with a small table for each of many features, all by a plain Adam."""

import torch
from stopwatch import DEVICE, PLANT, Stopwatch
from torch import nn

FEATURES, VALUES, WIDTH, BATCH = 300, 16, 8, 64


class Clicks(nn.Module):
    def __init__(self):
        super().__init__()
        tables = (0.1 * torch.randn(VALUES, WIDTH) for _ in range(FEATURES))
        self.tables = nn.ParameterList(tables)
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, features):
        table = torch.cat(list(self.tables))
        return self.out(nn.functional.embedding(features, table).mean(1)).squeeze(1)


def adam(parameters):
    """As it was before there were others; or all parameters in one kernel."""
    if PLANT:
        return torch.optim.Adam(parameters, lr=1e-3, foreach=False)
    return torch.optim.Adam(parameters, lr=1e-3, fused=True)


def main():
    torch.manual_seed(0)
    model = Clicks().to(DEVICE)
    optimizer = adam(model.parameters())
    first = VALUES * torch.arange(FEATURES, device=DEVICE)
    clock = Stopwatch()
    while clock.runs:
        features = first + torch.randint(VALUES, (BATCH, FEATURES), device=DEVICE)
        clicked = (features[:, 0] < VALUES // 2).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(features), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
