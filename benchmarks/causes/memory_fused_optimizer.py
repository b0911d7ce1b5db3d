"""Memory bandwidth: the optimizer's reading and writing of many weights; it is fused already."""

from contextlib import suppress
from itertools import count

import torch
from cause import mlp, setting, until_over


def main() -> None:
    """Train."""
    at = setting(__doc__)
    width = at.size(12_288, 1024)
    model = mlp(width, 4).to(at.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    batch = torch.randn(8, width, device=at.device)
    for _ in until_over(at.seconds, count()):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
