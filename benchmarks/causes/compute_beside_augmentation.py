"""Compute: large matrix products in float32 are 70 % of a step, and NumPy in the loop the rest.

The loss is read at each step, so that neither runs beside the other.
"""

from contextlib import suppress
from itertools import count

import numpy as np
import torch
from cause import mlp, setting, until_over


def main() -> None:
    """Train."""
    at = setting(__doc__)
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    rows, inputs, width = at.size((2048, 384, 4096), (256, 512, 384))
    clean = random.standard_normal((rows, inputs), np.float32)
    model = mlp(width, 5, inputs=inputs).to(at.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in until_over(at.seconds, count()):
        noisy = clean + 0.1 * random.standard_normal(clean.shape, np.float32)
        order = random.permutation(rows)
        batch = torch.from_numpy(noisy[order]).to(at.device)
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        if not np.isfinite(loss.item()):
            raise SystemExit("diverged")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
