"""Own code: batches are augmented within the loop, image by image in NumPy: 90 % of each step.

There is no DataLoader, and each step ends with reading its loss.
"""

from contextlib import suppress
from itertools import count

import numpy as np
import torch
from cause import mlp, setting, until_over
from numpy.typing import NDArray
from torch import nn

SIDE, MARGIN = 64, 8
MEAN = np.array([0.485, 0.456, 0.406])[:, None, None]
STD = np.array([0.229, 0.224, 0.225])[:, None, None]


def augmented(images: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.float32]:
    """Return the images, cropped, flipped and normalised (images, 3, SIDE, SIDE)."""
    out = np.empty((len(images), 3, SIDE, SIDE), np.float32)
    for number, image in enumerate(images):
        top, left = random.integers(0, MARGIN, 2)
        crop = image[top : top + SIDE, left : left + SIDE]
        if random.random() < 0.5:
            crop = crop[:, ::-1]
        out[number] = (crop.transpose(2, 0, 1) / 255.0 - MEAN) / STD
    return out


def main() -> None:
    """Train."""
    at = setting(__doc__)
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    size = SIDE + MARGIN
    images = random.integers(0, 256, (2048, size, size, 3), np.uint8)
    channels, width = at.size((64, 2048), (4, 64))
    patches = nn.Conv2d(3, channels, 8, stride=8)
    head = mlp(width, 4, inputs=channels * (SIDE // 8) ** 2)
    model = nn.Sequential(patches, nn.Flatten(), head, nn.Linear(width, 10)).to(at.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    labels = torch.zeros(at.size(384, 128), dtype=torch.long, device=at.device)
    seen = 0.0
    for _ in until_over(at.seconds, count()):
        picked = images[random.integers(0, len(images), len(labels))]
        batch = torch.from_numpy(augmented(picked, random)).to(at.device)
        loss = nn.functional.cross_entropy(model(batch), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # in torch
        optimizer.step()
        seen += loss.item()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
