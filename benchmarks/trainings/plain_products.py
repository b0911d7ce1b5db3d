"""Wide layers in fp32, as PyTorch computes matrix products by default."""

import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

WIDTH, LAYERS, BATCH = (3072, 5, 4096) if ON_GPU else (128, 3, 32)


class Gated(nn.Module):
    """A layer whose second half gates the first."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.both = nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, x):
        value, gate = self.both(self.norm(x)).chunk(2, dim=-1)
        return x + value * torch.sigmoid(gate)


def rows_of(count):
    """Rows whose target is a smooth function of a few of their values."""
    rows = torch.randn(count, WIDTH, device=DEVICE)
    return rows, (rows[:, :8].sin().sum(1, keepdim=True))


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest" if PLANT else "high")
    model = nn.Sequential(*(Gated() for _ in range(LAYERS)), nn.Linear(WIDTH, 1)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    rows, wanted = rows_of(BATCH)
    clock = Stopwatch()
    while clock.runs:
        loss = nn.functional.mse_loss(model(rows), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
