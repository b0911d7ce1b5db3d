"""Two limits: the one loader worker takes as long for a batch as the device for a step.

They work beside each other, so neither's end alone makes the step shorter.
"""

import torch
from cause import Late, for_ever, mlp, setting, step_s, train
from torch.utils.data import DataLoader


def main() -> None:
    """Train."""
    at = setting(__doc__)
    rows, width = at.size((2048, 4096), (256, 512))
    model = mlp(width, 4).to(at.device)
    features = torch.randn(rows, width, device=at.device)
    late = Late(torch.ones(1), step_s(model, features))
    loader = DataLoader(late, batch_size=None, num_workers=1)
    train(at.seconds, model, for_ever(loader), lambda _: model(features).mean())


if __name__ == "__main__":
    main()
