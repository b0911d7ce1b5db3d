"""Compute: a float32 transformer, on short and long sequences in turns; the host never waits.

The optimizer is fused already. The tensor cores idle.
"""

from contextlib import suppress
from itertools import cycle

import torch
from cause import setting, until_over
from torch import nn


def main() -> None:
    """Train."""
    at = setting(__doc__)
    width, heads, layers = at.size((1024, 16, 4), (128, 4, 2))
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(at.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    batch, lengths = at.size((8, (256, 512)), (4, (32, 64)))
    sequences = [torch.randn(batch, length, width, device=at.device) for length in lengths]
    for sequence in until_over(at.seconds, cycle(sequences)):
        optimizer.zero_grad()
        model(sequence).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
