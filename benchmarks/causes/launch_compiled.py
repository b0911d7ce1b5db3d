"""Launching: a tiny network that is compiled to CUDA graphs already, with a fused optimizer.

The host calls the compiled code and the optimizer; the device has even less to do.
"""

from contextlib import suppress
from itertools import count
from typing import Any

import torch
from cause import mlp, setting, until_over
from torch import nn


def main() -> None:
    """Train."""
    at = setting(__doc__)
    how: dict[str, Any] = at.size({"mode": "reduce-overhead"}, {"backend": "aot_eager"})
    model = mlp(64, 6).to(at.device)
    compiled = torch.compile(model, **how)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    batch = torch.randn(16, 64, device=at.device)
    for _ in until_over(at.seconds, count()):
        loss = nn.functional.mse_loss(compiled(batch), batch)
        loss.backward()  # type: ignore[no-untyped-call]  # in torch
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
