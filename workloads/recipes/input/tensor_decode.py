"""The samples are the same. torchvision decodes to a tensor, without a PIL image between."""

import torch
from torchvision.io import ImageReadMode, decode_jpeg, read_file

SIDE = 256
TO_YUV = torch.tensor(
    [
        [0.299, -0.16874, 0.5],
        [0.587, -0.33126, -0.41869],
        [0.114, 0.5, -0.08131],
    ],
    device=device,
)
OFFSET = torch.tensor([0.0, 128, 128], device=device)


def grow(hidden):  # (…, height, width) bool, by the four neighbours
    grown = hidden.clone()
    grown[..., 1:, :] |= hidden[..., :-1, :]
    grown[..., :-1, :] |= hidden[..., 1:, :]
    grown[..., 1:] |= hidden[..., :-1]
    grown[..., :-1] |= hidden[..., 1:]
    return grown


def load(path, top, left, hidden):  # in Dataset.__getitem__
    pixels = decode_jpeg(read_file(path), mode=ImageReadMode.RGB)
    return pixels[:, top : top + SIDE, left : left + SIDE], hidden


def finish(pixels, hidden):  # in the loop, after the copy to the device
    pixels = pixels.masked_fill(grow(hidden).unsqueeze(-3), 0)
    pixels = pixels.movedim(-3, -1).float() @ TO_YUV + OFFSET
    return pixels.movedim(-1, -3) / 255
