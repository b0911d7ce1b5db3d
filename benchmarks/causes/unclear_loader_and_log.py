"""Unclear: a loader worker that is a little too slow, and a log that is a little too long."""

import torch
from cause import Late, Pace, for_ever, setting, step_s, train
from torch import nn
from torch.utils.data import DataLoader


def main() -> None:
    """Train."""
    at = setting(__doc__)
    channels = at.size(128, 32)
    layers = [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(at.size(16, 4))]
    model = nn.Sequential(*layers).to(at.device)
    images = torch.randn(at.size(16, 8), channels, at.size(128, 32), 32, device=at.device)
    pace = Pace(at, step_s(model, images))
    loader = DataLoader(Late(torch.ones(1), pace.late_s), batch_size=None, num_workers=1)
    batches = pace.timed(for_ever(loader))
    train(at.seconds, model, batches, lambda _: model(images).mean(), after_step=pace.rest)


if __name__ == "__main__":
    main()
