"""The samples are the same: a boolean dilation instead of a convolution."""

import torch
from PIL import Image
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


def grow(hidden):  # (…, height, width) bool, by the four neighbours
    grown = hidden.clone()
    grown[..., 1:, :] |= hidden[..., :-1, :]
    grown[..., :-1, :] |= hidden[..., 1:, :]
    grown[..., 1:] |= hidden[..., :-1]
    grown[..., :-1] |= hidden[..., 1:]
    return grown


def load(path, top, left, hidden):  # in Dataset.__getitem__
    pixels = pil_to_tensor(Image.open(path))
    pixels = pixels[:, top : top + SIDE, left : left + SIDE]
    pixels = pixels.masked_fill(grow(hidden), 0)
    pixels = pixels.movedim(-3, -1).float() @ TO_YUV + OFFSET
    return pixels.movedim(-1, -3) / 255
