"""Copy: the script copies large tensors, pinned and non_blocking; its one stream waits for them.

The host runs ahead. Nothing else takes as long as the bus.
"""

from contextlib import suppress
from itertools import cycle

import torch
from cause import mlp, setting, until_over


def main() -> None:
    """Train."""
    at = setting(__doc__)
    rows, is_pinned = at.size((32_768, True), (256, False))
    data = [torch.randn(rows, 4096, pin_memory=is_pinned) for _ in range(2)]
    model = mlp(64, 2, inputs=4096).to(at.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for features in until_over(at.seconds, cycle(data)):
        on_device = features.to(at.device, non_blocking=True)
        loss = model(on_device).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
