"""Input: spectra are computed sample by sample in the training process: num_workers is 0."""

from contextlib import suppress

import numpy as np
import torch
from cause import for_ever, mlp, setting, until_over
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

FRAME = 512


class Spectra(Dataset[tuple[Tensor, int]]):
    """Log spectra of noisy waves."""

    def __init__(self, frames: int) -> None:
        self._frames = frames

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        random = np.random.default_rng(index)
        frames = random.standard_normal((self._frames, FRAME)) * np.hanning(FRAME)
        power = np.abs(np.fft.rfft(frames)) ** 2
        return torch.from_numpy(np.log1p(power).mean(0)).float(), index % 10


def main() -> None:
    """Train."""
    at = setting(__doc__)
    torch.set_num_threads(1)
    loader = DataLoader(Spectra(at.size(32, 64)), batch_size=32, shuffle=True)
    width = at.size(2048, 128)
    body = mlp(width, 3, inputs=FRAME // 2 + 1)
    model = nn.Sequential(body, nn.Linear(width, 10)).to(at.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for spectra, labels in until_over(at.seconds, for_ever(loader)):
        scores = model(spectra.to(at.device))
        loss = nn.functional.cross_entropy(scores, labels.to(at.device))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # in torch
        optimizer.step()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
