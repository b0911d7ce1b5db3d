"""An image classifier that is evaluated on all held-back pictures every 25 steps."""

import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

SIDE, BATCH, CHANNELS = (64, 128, 64) if ON_GPU else (16, 16, 8)
EVERY = 25
BATCHES = (200 if ON_GPU else 300) if PLANT else 2
"""Of an evaluation."""


def network():
    return nn.Sequential(
        nn.Conv2d(3, CHANNELS, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(CHANNELS, 2 * CHANNELS, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * CHANNELS, 10),
    )


def evaluate(model, pictures, classes):
    model.eval()
    right = torch.zeros((), device=DEVICE)
    with torch.no_grad():
        for _ in range(BATCHES):
            right += (model(pictures).argmax(1) == classes).sum()
    model.train()
    return right.item() / (BATCHES * len(classes))


def main():
    torch.manual_seed(0)
    model = network().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    pictures = torch.rand(BATCH, 3, SIDE, SIDE, device=DEVICE)
    classes = torch.randint(10, (BATCH,), device=DEVICE)
    clock = Stopwatch(period=EVERY)
    step = 0
    accuracy = 0.0
    while clock.runs:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(pictures), classes)
        loss.backward()
        optimizer.step()
        step += 1
        if step % EVERY == 0:
            accuracy = evaluate(model, pictures, classes)
        clock.step()
    print(f"accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
