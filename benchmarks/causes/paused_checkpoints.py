"""Paused: the training saves its weights for most of the time."""

import time
from itertools import repeat
from tempfile import TemporaryFile

import torch
from cause import mlp, setting, train

TRAIN_S, SAVE_S = 1.0, 3.0


def main() -> None:
    """Train."""
    at = setting(__doc__)
    width = at.size(8192, 1024)
    model = mlp(width, 4).to(at.device)
    batch = torch.randn(64, width, device=at.device)
    due_s = time.monotonic() + TRAIN_S

    def save(_step: int) -> None:
        nonlocal due_s
        if time.monotonic() < due_s or at.is_mended:
            return
        until_s = time.monotonic() + SAVE_S
        while time.monotonic() < until_s:
            with TemporaryFile() as file:
                torch.save(model.state_dict(), file)
        due_s = time.monotonic() + TRAIN_S

    train(at.seconds, model, repeat(batch), lambda batch: model(batch).mean(), after_step=save)


if __name__ == "__main__":
    main()
