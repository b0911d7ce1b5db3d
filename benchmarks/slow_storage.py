"""A training whose samples wait for a slow storage; its device is a sleep, so two cores suffice.

python benchmarks/slow_storage.py --batch-ms 60 --step-ms 10 --workers 2
gpudash ab benchmarks/slow_storage.py --lever num_workers=2,16
"""

import argparse
import time
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from gpudash import workload


class Remote(Dataset[Tensor]):
    """Batches that are late."""

    def __init__(self, late_s: float, batches: int) -> None:
        self._late_s, self._batches = late_s, batches

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(self._late_s)
        return torch.full((8, 64), float(index % 7))


@workload(batch_size=1, batch_ms=60, step_ms=10)
def storage(values: Mapping[str, Any], device: torch.device) -> tuple[Any, ...]:
    """Wait for a slow storage, as a workload."""
    model = nn.Linear(64, 1).to(device)

    def loss(trained: nn.Module, batch: Tensor) -> Tensor:
        time.sleep(values["step_ms"] / 1e3)
        return cast("Tensor", trained(batch).mean())

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    return model, optimizer, Remote(values["batch_ms"] / 1e3, 1 << 16), loss


def main() -> None:
    """Train until it is interrupted; say for how long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-ms", type=float, default=60.0, help="to make a batch")
    parser.add_argument("--step-ms", type=float, default=10.0, help="on the device")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batches", type=int, default=1 << 16, help="of an epoch")
    at = parser.parse_args()
    torch.set_num_threads(1)
    loader = DataLoader(
        Remote(at.batch_ms / 1e3, at.batches), batch_size=None, shuffle=True, num_workers=at.workers
    )
    model = nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    began_s, steps = time.monotonic(), 0
    try:
        while True:
            for batch in loader:
                optimizer.zero_grad()
                model(batch).mean().backward()
                optimizer.step()
                time.sleep(at.step_ms / 1e3)
                steps += 1
    except KeyboardInterrupt:
        print(f"trained {steps} steps in {time.monotonic() - began_s:.1f} s", flush=True)


if __name__ == "__main__":
    main()
