"""Compute: float32 matrix products of bare tensors, and an update by hand; the host never waits.

There is no module, no optimizer of torch's and no DataLoader. The tensor cores idle.
"""

from contextlib import suppress
from itertools import count

import torch
from cause import setting, until_over

RATE, MOMENTUM = 1e-6, 0.9


def main() -> None:
    """Train."""
    at = setting(__doc__)
    rows, width = at.size((4096, 4096), (256, 512))
    weights = [torch.randn(width, width, device=at.device) / width**0.5 for _ in range(4)]
    momenta = [torch.zeros_like(weight) for weight in weights]
    for weight in weights:
        weight.requires_grad_()
    batch = torch.randn(rows, width, device=at.device)
    for _ in until_over(at.seconds, count()):
        out = batch
        for weight in weights:
            out = torch.tanh(out @ weight)
        (out**2).mean().backward()  # type: ignore[no-untyped-call]  # in torch
        with torch.no_grad():
            for weight, momentum in zip(weights, momenta, strict=True):
                momentum.mul_(MOMENTUM).add_(weight.grad if weight.grad is not None else 0.0)
                weight.sub_(momentum, alpha=RATE)
                weight.grad = None


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
