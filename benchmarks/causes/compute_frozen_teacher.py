"""Compute: a frozen teacher's forward pass in float32, which a small student is trained against.

The loss is read at each step. This costs nothing: the device is busy all the same.
"""

from contextlib import suppress
from itertools import count

import torch
from cause import mlp, setting, until_over
from torch import nn


def main() -> None:
    """Train."""
    at = setting(__doc__)
    rows, width = at.size((2048, 8192), (128, 1024))
    teacher = mlp(width, 6).to(at.device).eval().requires_grad_(requires_grad=False)
    small = mlp(width // 8, 2, inputs=width)
    student = nn.Sequential(small, nn.Linear(width // 8, width)).to(at.device)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-4)
    batch = torch.randn(rows, width, device=at.device)
    losses = []
    for _ in until_over(at.seconds, count()):
        with torch.no_grad():
            wanted = teacher(batch)
        loss = nn.functional.mse_loss(student(batch), wanted)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # in torch
        optimizer.step()
        losses.append(loss.item())


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
