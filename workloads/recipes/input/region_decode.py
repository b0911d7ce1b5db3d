"""The samples are the same; the package is nvidia-nvimgcodec-cu13. Only the crop is decoded, on
the CPU. Make the decoder in the worker: its threads do not survive a fork."""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from nvidia import nvimgcodec

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


@cache
def decoder():
    return nvimgcodec.Decoder(
        device_id=nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY,
        max_num_cpu_threads=1,
        backends=[nvimgcodec.Backend(nvimgcodec.BackendKind.CPU_ONLY)],
        options=":fancy_upsampling=1",
    )


def grow(hidden):  # (…, height, width) bool, by the four neighbours
    grown = hidden.clone()
    grown[..., 1:, :] |= hidden[..., :-1, :]
    grown[..., :-1, :] |= hidden[..., 1:, :]
    grown[..., 1:] |= hidden[..., :-1]
    grown[..., :-1] |= hidden[..., 1:]
    return grown


def load(path, top, left, hidden):  # in Dataset.__getitem__
    region = nvimgcodec.Region(top, left, top + SIDE, left + SIDE)
    stream = nvimgcodec.CodeStream(Path(path).read_bytes())
    image = decoder().decode(stream.get_sub_code_stream(region=region))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1), hidden


def finish(pixels, hidden):  # in the loop, after the copy to the device
    pixels = pixels.masked_fill(grow(hidden).unsqueeze(-3), 0)
    pixels = pixels.movedim(-3, -1).float() @ TO_YUV + OFFSET
    return pixels.movedim(-1, -3) / 255
