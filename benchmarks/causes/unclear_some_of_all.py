"""Unclear: a little waiting for data, a little of the script's own work, the rest on the device."""

import torch
from cause import Late, Pace, Sums, for_ever, setting, step_s, train
from torch.utils.data import DataLoader


def main() -> None:
    """Train."""
    at = setting(__doc__)
    length = at.size(1 << 16, 1 << 12)
    model = Sums(length, at.size(24, 12)).to(at.device)
    rows = torch.randn(64, length, device=at.device)
    pace = Pace(at, step_s(model, rows))
    loader = DataLoader(Late(torch.ones(1), pace.late_s), batch_size=None)
    batches = pace.timed(for_ever(loader))
    train(at.seconds, model, batches, lambda _: model(rows).mean(), after_step=pace.rest)


if __name__ == "__main__":
    main()
