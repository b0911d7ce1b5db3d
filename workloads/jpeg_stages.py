"""The stages of `jpeg_input`: the transforms of a sample, and where each runs.

Each stage differs from the one before in one point, and all of them yield the same sample:

    baseline         decode → tensor → crop → mask (convolve2d) → colour → scale
    dilation         the mask is dilated by shifted ORs instead of a convolution
    crop_first       the decoded image is cropped, and only the crop becomes a tensor
    batched_colour   colour and scale once for the batch, still in the loader worker
    on_device        mask, colour and scale in the first half; bytes are copied, not floats
    tensor_decode    torchvision decodes straight to a tensor, without a PIL image between
    region_decode    nvImageCodec decodes only the crop, on the CPU

A sample has one random number, its key, which places the crop and seeds the mask. The mask is an
integer hash of key and pixel, and not a generator's stream: a hash gives the same bits on host and
device, so only the key's eight bytes are copied.

Decoding on the device (nvJPEG through torchvision) is left out: it corrupted images when the
caller's stream had work queued, as in a pipelined first half.

Shapes: B batch, H, W image (533, 800), S crop side (256).
"""

import importlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from PIL import Image
from scipy.signal import convolve2d
from torch import Tensor
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms.v2.functional import pil_to_tensor

from workloads.jpeg_files import HEIGHT, WIDTH

SIDE = 256  # S
KEY_BITS = 31
"""The product of two such numbers fits into an int64, so the hash never overflows."""
UNREADABLE = (OSError, ValueError, RuntimeError, Image.DecompressionBombError)
"""Errors of PIL and torchvision, and of a wrong shape, for a file that is no valid JPEG."""

# A transform takes the result of the one before, and the key: () int64 for a sample, (B,) for a
# batch.


def read(path: Path, _key: Tensor) -> bytes:
    """Read a file."""
    return path.read_bytes()


def decode(encoded: bytes, _key: Tensor) -> Image.Image:
    """Decode the whole image (W × H)."""
    image = Image.open(BytesIO(encoded))
    image.load()  # open reads only the header
    return image


def to_tensor(image: Image.Image, _key: Tensor) -> Tensor:
    """Return pixels (3, height, width) uint8, a view of (height, width, 3)."""
    pixels: Tensor = pil_to_tensor(image)
    return pixels


def crop_image(image: Image.Image, key: Tensor) -> Image.Image:
    """Cut the crop out of a PIL image."""
    top, left = corner(key)
    return image.crop((left, top, left + SIDE, top + SIDE))


def crop_tensor(pixels: Tensor, key: Tensor) -> Tensor:
    """Return the crop (3, S, S) of (3, H, W), as a view."""
    top, left = corner(key)
    return pixels[:, top : top + SIDE, left : left + SIDE]


def mask_convolved(pixels: Tensor, key: Tensor) -> Tensor:
    """Mask a random quarter of the pixels and their four neighbours, by a convolution."""
    cross = [[0, 1, 0], [1, 1, 1], [0, 1, 0]]
    hidden = convolve2d(random_mask(key).numpy(), cross, mode="same").astype(bool)
    return pixels.masked_fill(torch.from_numpy(hidden), 0)


def mask_shifted(pixels: Tensor, key: Tensor) -> Tensor:
    """Mask the same pixels of (…, 3, S, S), found by shifted ORs."""
    return pixels.masked_fill(dilate(random_mask(key)).unsqueeze(-3), 0)


def colour(pixels: Tensor, _key: Tensor) -> Tensor:
    """Convert RGB (…, 3, S, S) uint8 to YUV (…, 3, S, S) float32, from 0 to 255."""
    matrix, offset = yuv(pixels.device)
    return (pixels.movedim(-3, -1).float() @ matrix + offset).movedim(-1, -3)


def scale(pixels: Tensor, _key: Tensor) -> Tensor:
    """Scale 0…255 to 0…1."""
    return pixels / 255


def decode_tensor(encoded: bytes, _key: Tensor) -> Tensor:
    """Decode the whole image to (3, H, W) uint8."""
    pixels: Tensor = decode_jpeg(
        torch.frombuffer(bytearray(encoded), dtype=torch.uint8), mode=ImageReadMode.RGB
    )
    return pixels


def decode_region(encoded: bytes, key: Tensor) -> Tensor:
    """Decode only the crop to (3, S, S) uint8, a view of (S, S, 3).

    PIL, torchvision and TurboJPEG's Python bindings always decode the whole image. This gives the
    same pixels in half the time.
    """
    codec = nvimgcodec()
    top, left = corner(key)
    region = codec.Region(top, left, top + SIDE, left + SIDE)
    image = region_decoder(os.getpid()).decode(
        codec.CodeStream(encoded).get_sub_code_stream(region=region)
    )
    if image is None:
        raise ValueError("nvImageCodec cannot decode it")
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


# Helpers of the transforms.


def corner(key: Tensor) -> tuple[int, int]:
    """Return top and left of the crop of a key ()."""
    left, top = divmod(int(key) % ((HEIGHT - SIDE + 1) * (WIDTH - SIDE + 1)), HEIGHT - SIDE + 1)
    return top, left


def random_mask(key: Tensor) -> Tensor:
    """Return (…, S, S) bool for a key (…), a quarter of it true: a hash of key and pixel."""
    limit = (1 << KEY_BITS) - 1
    bits = torch.arange(SIDE * SIDE, device=key.device) ^ key[..., None]  # (…, S·S) int64
    bits ^= bits >> 16
    bits *= 0x7FEB352D
    bits &= limit
    bits ^= bits >> 15
    bits *= 0x046CA68B
    bits &= limit
    bits ^= bits >> 16
    return (bits < 1 << (KEY_BITS - 2)).view(*key.shape, SIDE, SIDE)


def dilate(mask: Tensor) -> Tensor:
    """Return a mask (…, height, width) bool grown by the four neighbours of every pixel."""
    grown = mask.clone()
    grown[..., 1:, :] |= mask[..., :-1, :]
    grown[..., :-1, :] |= mask[..., 1:, :]
    grown[..., 1:] |= mask[..., :-1]
    grown[..., :-1] |= mask[..., 1:]
    return grown


@cache
def yuv(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the conversion from RGB to YUV: matrix (3, 3) to multiply by, offset (3,) to add."""
    matrix = [[0.299, 0.587, 0.114], [-0.16874, -0.33126, 0.5], [0.5, -0.41869, -0.08131]]
    # sync: two copies, once per device and process
    return torch.tensor(matrix, device=device).T, torch.tensor([0.0, 128, 128], device=device)


@cache
def nvimgcodec() -> ModuleType:
    """Import nvImageCodec. Raises ImportError."""
    return importlib.import_module("nvidia.nvimgcodec")


@cache
def region_decoder(_process: int) -> Any:
    """Return this process's decoder; each process needs its own, as threads end at a fork."""
    codec = nvimgcodec()
    return codec.Decoder(
        device_id=codec.NVIMGCODEC_DEVICE_CPU_ONLY,
        max_num_cpu_threads=1,
        backends=[codec.Backend(codec.BackendKind.CPU_ONLY)],
        options=":fancy_upsampling=1",  # libjpeg's default, which the other decoders keep
    )


# The stages: which transforms run where.

Transform: TypeAlias = Callable[[Any, Tensor], Any]


class Step(NamedTuple):
    """A transform, with the name under which its time is reported."""

    name: str
    apply: Transform


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One value of the lever `input`."""

    sample: tuple[Step, ...]
    """Transforms of each sample, in a loader worker."""
    batch: tuple[Step, ...] = ()
    """Transforms of a whole batch, in the loader worker."""
    device: tuple[Step, ...] = ()
    """Transforms in the first half of the step, on the training device."""


READ = Step("read", read)
DECODE = Step("decode", decode)
TO_TENSOR = Step("to_tensor", to_tensor)
CROP_IMAGE = Step("crop", crop_image)
CROP_TENSOR = Step("crop", crop_tensor)
MASK = Step("mask", mask_shifted)
COLOUR = Step("colour", colour)
SCALE = Step("scale", scale)

STAGES = {
    "baseline": Stage(
        sample=(
            READ,
            DECODE,
            TO_TENSOR,
            CROP_TENSOR,
            Step("mask", mask_convolved),
            COLOUR,
            SCALE,
        )
    ),
    "dilation": Stage(sample=(READ, DECODE, TO_TENSOR, CROP_TENSOR, MASK, COLOUR, SCALE)),
    "crop_first": Stage(sample=(READ, DECODE, CROP_IMAGE, TO_TENSOR, MASK, COLOUR, SCALE)),
    "batched_colour": Stage(
        sample=(READ, DECODE, CROP_IMAGE, TO_TENSOR, MASK), batch=(COLOUR, SCALE)
    ),
    "on_device": Stage(sample=(READ, DECODE, CROP_IMAGE, TO_TENSOR), device=(MASK, COLOUR, SCALE)),
    "tensor_decode": Stage(
        sample=(READ, Step("decode", decode_tensor), CROP_TENSOR), device=(MASK, COLOUR, SCALE)
    ),
    "region_decode": Stage(
        sample=(READ, Step("decode", decode_region)), device=(MASK, COLOUR, SCALE)
    ),
}


def run(steps: Sequence[Step], made: Any, key: Tensor) -> tuple[Any, list[float]]:
    """Run the steps on `made`; return the result, and the milliseconds of each."""
    took_ms = []
    for step in steps:
        began = time.perf_counter()
        made = step.apply(made, key)
        took_ms.append((time.perf_counter() - began) * 1e3)
    return made, took_ms
