"""Unclear: a loader worker that is a little too slow, and a log that is a little too long."""

import time

import torch
from cause import Late, for_ever, setting, step_s, train
from torch import nn
from torch.utils.data import DataLoader

LOG, LATE = 0.08, 1.17
"""Of the device's work: the log takes 8 % more, and batches come every 117 %."""


def main() -> None:
    """Train."""
    at = setting(__doc__)
    channels = at.size(64, 32)
    layers = [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(at.size(12, 4))]
    model = nn.Sequential(*layers).to(at.device)
    batch = torch.randn(8, channels, 32, 32)
    batch.share_memory_()  # type: ignore[no-untyped-call]
    work_s = step_s(model, batch.to(at.device))
    loader = DataLoader(Late(batch, LATE * work_s), batch_size=None, num_workers=1)

    def log(_step: int) -> None:
        next(model.parameters()).sum().item()  # the device has finished
        time.sleep(LOG * work_s)  # as a slow disk would

    train(
        at.seconds,
        model,
        for_ever(loader),
        lambda batch: model(batch.to(at.device)).mean(),
        after_step=log,
    )


if __name__ == "__main__":
    main()
