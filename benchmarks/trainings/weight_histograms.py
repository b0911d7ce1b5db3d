"""Regression on table rows; a histogram of each weight goes into the log."""

import numpy as np
import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

WIDTH, LAYERS, BATCH = (768, 5, 1024) if ON_GPU else (512, 4, 32)
EVERY = 1 if PLANT else 500


class Log:
    """What would be sent to a board of charts."""

    def __init__(self):
        self.histograms = {}

    def histogram(self, name, values):
        counts, edges = np.histogram(values, bins=64)
        self.histograms[name] = (counts, edges)


def network():
    layers = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 1))


def main():
    torch.manual_seed(0)
    model = network().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    rows = torch.randn(16 * BATCH, WIDTH, device=DEVICE)
    answers = rows[:, :3].sum(1, keepdim=True)
    log = Log()
    clock = Stopwatch()
    step = 0
    while clock.runs:
        part = slice(step % 16 * BATCH, (step % 16 + 1) * BATCH)
        loss = nn.functional.mse_loss(model(rows[part]), answers[part])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % EVERY == 0:
            for name, weight in model.named_parameters():
                log.histogram(name, weight.detach().cpu().numpy())
        step += 1
        clock.step()
    print(f"{len(log.histograms)} histograms, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
