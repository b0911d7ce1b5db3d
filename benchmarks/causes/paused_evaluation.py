"""Paused: the training evaluates for most of the time."""

import time
from itertools import repeat

import torch
from cause import mlp, setting, train

TRAIN_S, EVALUATE_S = 1.0, 3.0


def main() -> None:
    """Train."""
    at = setting(__doc__)
    width = at.size(2048, 256)
    model = mlp(width, 6).to(at.device)
    batch = torch.randn(64, width, device=at.device)
    due_s = time.monotonic() + TRAIN_S

    def evaluate(_step: int) -> None:
        nonlocal due_s
        if time.monotonic() < due_s or at.is_mended:
            return
        model.eval()
        until_s = time.monotonic() + EVALUATE_S
        with torch.no_grad():
            while time.monotonic() < until_s:
                model(batch).mean().item()
        model.train()
        due_s = time.monotonic() + TRAIN_S

    train(at.seconds, model, repeat(batch), lambda batch: model(batch).mean(), after_step=evaluate)


if __name__ == "__main__":
    main()
