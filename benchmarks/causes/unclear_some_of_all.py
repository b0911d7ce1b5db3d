"""Unclear: a little waiting for data, a little of the script's own work, the rest on the device."""

import time

import torch
from cause import Late, for_ever, mlp, setting, step_s, train
from torch.utils.data import DataLoader

EACH = 0.08
"""Of the device's work."""


def main() -> None:
    """Train."""
    at = setting(__doc__)
    width = at.size(1024, 512)
    model = mlp(width, at.size(24, 8)).to(at.device)
    batch = torch.randn(at.size(256, 128), width)
    late_s = EACH * step_s(model, batch.to(at.device))
    loader = DataLoader(Late(batch, late_s), batch_size=None)

    def own_work(_step: int) -> None:
        next(model.parameters()).sum().item()  # the device has finished
        time.sleep(late_s)

    train(
        at.seconds,
        model,
        for_ever(loader),
        lambda batch: model(batch.to(at.device)).mean(),
        after_step=own_work,
    )


if __name__ == "__main__":
    main()
