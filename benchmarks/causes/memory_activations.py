"""Memory bandwidth: normalisation, activation, dropout and residuals of large activations."""

from itertools import repeat

import torch
from cause import setting, train
from torch import Tensor, nn


class Block(nn.Module):
    """What a transformer does between its matrix products."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.scale = nn.Parameter(torch.ones(width))
        self.dropout = nn.Dropout(0.1)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the rows (rows, width) of the next block."""
        inner: Tensor = self.dropout(nn.functional.gelu(self.norm(rows)))
        return rows + self.scale * inner


def main() -> None:
    """Train."""
    at = setting(__doc__)
    rows, width = at.size((8192, 8192), (256, 1024))
    model = nn.Sequential(*(Block(width) for _ in range(4))).to(at.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batch = torch.randn(rows, width, device=at.device)
    train(at.seconds, model, repeat(batch), lambda batch: model(batch).mean(), optimizer)


if __name__ == "__main__":
    main()
