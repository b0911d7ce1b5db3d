"""Everything for each sample alone, in the loader worker."""

import torch
from PIL import Image
from scipy.signal import convolve2d
from torchvision.transforms.v2.functional import pil_to_tensor

SIDE = 256
TO_YUV = torch.tensor(
    [
        [0.299, -0.16874, 0.5],
        [0.587, -0.33126, -0.41869],
        [0.114, 0.5, -0.08131],
    ]
)
OFFSET = torch.tensor([0.0, 128, 128])
CROSS = [[0, 1, 0], [1, 1, 1], [0, 1, 0]]


def load(path, top, left, hidden):  # in Dataset.__getitem__
    pixels = pil_to_tensor(Image.open(path))
    pixels = pixels[:, top : top + SIDE, left : left + SIDE]
    grown = convolve2d(hidden, CROSS, mode="same").astype(bool)
    pixels = pixels.masked_fill(torch.from_numpy(grown), 0)
    pixels = pixels.movedim(-3, -1).float() @ TO_YUV + OFFSET
    return pixels.movedim(-1, -3) / 255
