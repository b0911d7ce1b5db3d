"""Unclear: a loader worker that is a little too slow, and a log that is a little too long."""

import time

import torch
from cause import Late, for_ever, setting, step_s, train
from torch import nn
from torch.utils.data import DataLoader

IDLE, LATE = 0.14, 0.07
"""Of a step: the device has nothing to do, half of it because a batch is late."""


def main() -> None:
    """Train."""
    at = setting(__doc__)
    channels = at.size(128, 32)
    layers = [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(at.size(16, 4))]
    model = nn.Sequential(*layers).to(at.device)
    images = torch.randn(at.size(16, 8), channels, at.size(128, 32), 32, device=at.device)
    period_s = step_s(model, images) / (1 - IDLE)
    loader = DataLoader(Late(torch.ones(1), period_s), batch_size=None, num_workers=1)
    began_s = time.monotonic()

    def log(_step: int) -> None:
        """Write for so long, as to a slow disk, that the next batch is nearly there."""
        nonlocal began_s
        time.sleep(max(began_s + (1 - LATE) * period_s - time.monotonic(), 0.0))
        began_s = max(began_s + period_s, time.monotonic())

    train(at.seconds, model, for_ever(loader), lambda _: model(images).mean(), after_step=log)


if __name__ == "__main__":
    main()
