"""An autoencoder on a shared machine that pauses after each step to leave others room."""

import time

import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

WIDTH, BATCH = (1024, 512) if ON_GPU else (256, 64)
PAUSE_S = 0.012 if PLANT else 0.0


def autoencoder():
    return nn.Sequential(
        nn.Linear(WIDTH, WIDTH // 2),
        nn.ReLU(),
        nn.Linear(WIDTH // 2, 32),
        nn.Linear(32, WIDTH // 2),
        nn.ReLU(),
        nn.Linear(WIDTH // 2, WIDTH),
    )


def batches():
    """Low-rank rows and some noise, for ever."""
    basis = torch.randn(16, WIDTH, device=DEVICE)
    while True:
        yield torch.randn(BATCH, 16, device=DEVICE) @ basis + 0.1


def be_polite():
    if PAUSE_S:
        time.sleep(PAUSE_S)


def main():
    torch.manual_seed(0)
    model = autoencoder().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    clock = Stopwatch()
    for rows in batches():
        loss = nn.functional.mse_loss(model(rows), rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        be_polite()
        if not clock.step():
            break
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
