"""A transformer for tables that was tuned for a small GPU: 16 batches of 2 for each update."""

import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

WIDTH, LAYERS, LENGTH = (128, 3, 48) if ON_GPU else (16, 1, 8)
ROWS = 32
"""Of an update."""
AT_ONCE = 2 if PLANT else ROWS


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(1, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS)
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, rows):
        return self.out(self.layers(self.into(rows.unsqueeze(-1))).mean(1))


def main():
    torch.manual_seed(0)
    model = Table().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows = torch.randn(64 * ROWS, LENGTH, device=DEVICE)
    wanted = rows[:, :2].prod(1, keepdim=True)
    clock = Stopwatch()
    step = 0
    while clock.runs:
        first = step % 64 * ROWS
        optimizer.zero_grad()
        for at in range(first, first + ROWS, AT_ONCE):
            part = slice(at, at + AT_ONCE)
            loss = nn.functional.mse_loss(model(rows[part]), wanted[part])
            (loss * AT_ONCE / ROWS).backward()
        optimizer.step()
        step += 1
        clock.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
