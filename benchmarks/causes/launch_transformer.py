"""Launching: a small transformer whose weights are updated one by one, by some kernels each."""

from itertools import repeat

import torch
from cause import setting, train
from torch import nn


def main() -> None:
    """Train."""
    at = setting(__doc__)
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    encoder = nn.TransformerEncoder(layer, at.size(8, 4), enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(1000, 128), encoder, nn.Linear(128, 1000)).to(at.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    tokens = torch.randint(1000, (at.size(8, 2), 33), device=at.device)

    def loss_of(tokens: torch.Tensor) -> torch.Tensor:
        scores = model(tokens[:, :-1])
        return nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())

    train(at.seconds, model, repeat(tokens), loss_of, optimizer)


if __name__ == "__main__":
    main()
