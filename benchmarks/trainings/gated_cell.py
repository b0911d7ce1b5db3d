"""A recurrent net from a paper, its cell written by hand: many small operators a time step."""

import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

WIDTH, BATCH, TIMES = (256, 64, 60) if ON_GPU else (48, 16, 40)


class GatedCell(nn.Module):
    def __init__(self):
        super().__init__()
        self.reset_x, self.reset_h = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.update_x, self.update_h = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.new_x, self.new_h = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, h):
        reset = torch.sigmoid(self.reset_x(x) + self.reset_h(h))
        update = torch.sigmoid(self.update_x(x) + self.update_h(h))
        new = torch.tanh(self.new_x(x) + reset * self.new_h(h))
        return (1 - update) * new + update * h


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = GatedCell() if PLANT else None
        self.whole = None if PLANT else nn.GRU(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, sequence):
        if self.cell is None:
            return self.out(self.whole(sequence)[0][-1])
        h = torch.zeros_like(sequence[0])
        for x in sequence:
            h = self.cell(x, h)
        return self.out(h)


def main():
    torch.manual_seed(0)
    model = Recurrent().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    sequence = torch.randn(TIMES, BATCH, WIDTH, device=DEVICE)
    wanted = sequence.mean((0, 2)).unsqueeze(1)
    clock = Stopwatch()
    while clock.runs:
        loss = nn.functional.mse_loss(model(sequence), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.step()
    print(f"loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
