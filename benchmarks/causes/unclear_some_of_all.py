"""Unclear: a little waiting for data, a little of the script's own work, the rest on the device."""

import time

import torch
from cause import Late, Sums, for_ever, setting, step_s, train
from torch.utils.data import DataLoader

IDLE, LATE = 0.14, 0.07
"""Of a step: the device has nothing to do, half of it because a batch is late."""


def main() -> None:
    """Train."""
    at = setting(__doc__)
    length = at.size(1 << 16, 1 << 12)
    model = Sums(length, at.size(24, 12)).to(at.device)
    rows = torch.randn(64, length, device=at.device)
    period_s = step_s(model, rows) / (1 - IDLE)
    loader = DataLoader(Late(torch.ones(1), LATE * period_s), batch_size=None)
    due_s = time.monotonic()

    def keep_pace(_step: int) -> None:
        """Do the script's own work: it lasts until the next step is due."""
        nonlocal due_s
        due_s = max(due_s + period_s, time.monotonic())
        time.sleep(max(due_s - LATE * period_s - time.monotonic(), 0.0))

    train(at.seconds, model, for_ever(loader), lambda _: model(rows).mean(), after_step=keep_pace)


if __name__ == "__main__":
    main()
