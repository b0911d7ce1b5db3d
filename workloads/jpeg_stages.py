"""The stages of `jpeg_input`: what is done to a sample, by what, and where.

Each is the one before with one difference, and all of them yield the same sample:

    baseline         decode → tensor → crop → mask (convolve2d) → colour → scale
    dilation         the mask is dilated by shifted ORs instead of a convolution
    crop_first       the decoded image is cropped, and only the crop becomes a tensor
    batched_colour   colour and scale once for the batch, still in the loader worker
    on_device        mask, colour and scale in the first half; bytes travel, not floats
    tensor_decode    torchvision decodes straight to a tensor, without a PIL image between
    region_decode    nvImageCodec decodes no more than the crop, on the CPU

A sample's one random number, its key, says where the crop lies and seeds the mask. The mask
is an integer hash of key and pixel and not a generator's stream, because a hash gives the
same bits wherever it is computed: eight bytes travel, and the device finds the same mask.

Decoding on the device (nvJPEG through torchvision) is left out: it corrupted images when the
caller's stream had work queued, which is what a pipelined first half does.

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
"""A product of two such numbers fits an int64: the hash never overflows."""
UNREADABLE = (OSError, ValueError, RuntimeError, Image.DecompressionBombError)
"""What PIL, torchvision and a wrong shape raise for a file that is no such JPEG."""

# Every transform takes what the one before made, and the key: () int64 for a sample, (B,) for a
# batch.


def read(path: Path, _key: Tensor) -> bytes:
    """Read a file."""
    return path.read_bytes()


def decode(encoded: bytes, _key: Tensor) -> Image.Image:
    """Decode all of it (W × H)."""
    image = Image.open(BytesIO(encoded))
    image.load()  # open reads no more than the header
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
    """(3, H, W) → (3, S, S), a view."""
    top, left = corner(key)
    return pixels[:, top : top + SIDE, left : left + SIDE]


def mask_convolved(pixels: Tensor, key: Tensor) -> Tensor:
    """Hide a random quarter of the pixels and their four neighbours, by a convolution."""
    cross = [[0, 1, 0], [1, 1, 1], [0, 1, 0]]
    hidden = convolve2d(random_mask(key).numpy(), cross, mode="same").astype(bool)
    return pixels.masked_fill(torch.from_numpy(hidden), 0)


def mask_shifted(pixels: Tensor, key: Tensor) -> Tensor:
    """Hide the same pixels of (…, 3, S, S), found by shifted ORs."""
    return pixels.masked_fill(dilate(random_mask(key)).unsqueeze(-3), 0)


def colour(pixels: Tensor, _key: Tensor) -> Tensor:
    """RGB (…, 3, S, S) uint8 → YUV (…, 3, S, S) float32, from 0 to 255."""
    matrix, offset = yuv(pixels.device)
    return (pixels.movedim(-3, -1).float() @ matrix + offset).movedim(-1, -3)


def scale(pixels: Tensor, _key: Tensor) -> Tensor:
    """Bring 0…255 to 0…1."""
    return pixels / 255


def decode_tensor(encoded: bytes, _key: Tensor) -> Tensor:
    """Decode all of it to (3, H, W) uint8."""
    pixels: Tensor = decode_jpeg(
        torch.frombuffer(bytearray(encoded), dtype=torch.uint8), mode=ImageReadMode.RGB
    )
    return pixels


def decode_region(encoded: bytes, key: Tensor) -> Tensor:
    """Decode the crop alone to (3, S, S) uint8, a view of (S, S, 3).

    PIL and torchvision decode all or nothing; TurboJPEG's Python bindings, too. Here the same
    levels come out in half the time.
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


# What the transforms are made of.


def corner(key: Tensor) -> tuple[int, int]:
    """Return top and left of the crop that a key () stands for."""
    left, top = divmod(int(key) % ((HEIGHT - SIDE + 1) * (WIDTH - SIDE + 1)), HEIGHT - SIDE + 1)
    return top, left


def random_mask(key: Tensor) -> Tensor:
    """Key (…) → (…, S, S) bool, a quarter of it true: a hash of key and pixel."""
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
    """Return what turns RGB into YUV: matrix (3, 3) to multiply by, offset (3,) to add."""
    matrix = [[0.299, 0.587, 0.114], [-0.16874, -0.33126, 0.5], [0.5, -0.41869, -0.08131]]
    # sync: two copies, once per device and process
    return torch.tensor(matrix, device=device).T, torch.tensor([0.0, 128, 128], device=device)


@cache
def nvimgcodec() -> ModuleType:
    """Import nvImageCodec. Raises ImportError."""
    return importlib.import_module("nvidia.nvimgcodec")


@cache
def region_decoder(_process: int) -> Any:
    """Return this process's decoder: its thread would not survive a fork."""
    codec = nvimgcodec()
    return codec.Decoder(
        device_id=codec.NVIMGCODEC_DEVICE_CPU_ONLY,
        max_num_cpu_threads=1,
        backends=[codec.Backend(codec.BackendKind.CPU_ONLY)],
        options=":fancy_upsampling=1",  # libjpeg's default, which the other decoders keep
    )


# Which transforms run where.

Transform: TypeAlias = Callable[[Any, Tensor], Any]


class Step(NamedTuple):
    """One transform, by the name that its time is reported under."""

    name: str
    apply: Transform


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One value of the lever `input`."""

    sample: tuple[Step, ...]
    """In a loader worker, sample by sample."""
    batch: tuple[Step, ...] = ()
    """In the loader worker still, on all samples of a batch at once."""
    device: tuple[Step, ...] = ()
    """In the first half of the step, where the batch is trained on."""


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
    """Return what the steps make of it, and the milliseconds that each took."""
    took_ms = []
    for step in steps:
        began = time.perf_counter()
        made = step.apply(made, key)
        took_ms.append((time.perf_counter() - began) * 1e3)
    return made, took_ms
