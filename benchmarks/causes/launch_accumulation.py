"""Launching: eight small batches of a small transformer for each step of a fused optimizer."""

from contextlib import suppress
from itertools import count

import torch
from cause import setting, until_over
from torch import nn

SMALL_BATCHES = 8


def main() -> None:
    """Train."""
    at = setting(__doc__)
    layer = nn.TransformerEncoderLayer(64, 2, 128, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(256, 64), encoder, nn.Linear(64, 256)).to(at.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(256, (SMALL_BATCHES, 2, 17), device=at.device)
    for _ in until_over(at.seconds, count()):
        for rows in tokens:
            scores = model(rows[:, :-1]).flatten(0, 1)
            loss = nn.functional.cross_entropy(scores, rows[:, 1:].flatten())
            (loss / SMALL_BATCHES).backward()  # type: ignore[no-untyped-call]  # in torch
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
