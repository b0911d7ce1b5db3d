"""Launching: a recurrent network cell by cell, each of some small kernels."""

from contextlib import suppress
from itertools import count

import torch
from cause import setting, until_over
from torch import Tensor, nn


class Cells(nn.Module):
    """Two layers of LSTM cells, and a forecast of the next value."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.first = nn.LSTMCell(inputs, width)
        self.second = nn.LSTMCell(width, width)
        self.head = nn.Linear(width, inputs)

    def forward(self, series: Tensor) -> Tensor:
        """Return the forecasts (time, batch, inputs) for series (time, batch, inputs)."""
        first = second = None
        forecasts = []
        for values in series:
            first = self.first(values, first)
            second = self.second(first[0], second)
            forecasts.append(self.head(second[0]))
        return torch.stack(forecasts)


def main() -> None:
    """Train."""
    at = setting(__doc__)
    model = Cells(8, 128).to(at.device)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    series = torch.randn(at.size(65, 25), 16, 8, device=at.device)
    for _ in until_over(at.seconds, count()):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(series[:-1]), series[1:])
        loss.backward()  # type: ignore[no-untyped-call]  # in torch
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
