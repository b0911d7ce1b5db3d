"""Classification of crops from JPEG files, bound by the pipeline that makes its samples.

The source's experiment (C. Rand, Solving Bottlenecks on the Data Input Pipeline with PyTorch
Profiler and TensorBoard, 2023): read a photograph of 533×800, crop it at random, hide random
pixels, convert to YUV, scale. The lever `input` walks through its stages and beyond; each is
the one before with one difference, and all of them yield the same sample:

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
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from math import log2
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from PIL import Image
from scipy.signal import convolve2d
from torch import Tensor, nn
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms.v2.functional import pil_to_tensor

from workloads.jpeg_files import FILES, HEIGHT, WIDTH, JpegFiles
from workloads.levers import Value
from workloads.trade import Learner, Trade
from workloads.workload import Batch, Mark, Prepared, Samples

NUM_CLASSES = 10
DATASET_SIZE = 1_000_000
"""Every pass over the files crops and hides elsewhere."""
SIDE = 256  # S
KEY_BITS = 31
"""A product of two such numbers fits an int64: the hash never overflows."""
PATIENCE = 16
"""Unreadable files in a row that are passed over; more mean that something else is wrong."""
UNREADABLE = (OSError, ValueError, RuntimeError, Image.DecompressionBombError)
"""What PIL, torchvision and a wrong shape raise for a file that is no such JPEG."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large the model is. Samples are the same, since they are the subject."""

    channels: int
    stride: int
    """Of the first convolution; the rest of the model sees a crop smaller by that much."""


SCALES = {
    "full": Scale(channels=30, stride=1),  # the source's
    "small": Scale(channels=4, stride=8),  # next to nothing beside the input, on a CPU too
}


# What is done to a sample. Every transform takes what the one before made, and the key: ()
# int64 for a sample, (B,) for a batch.


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


class JpegCrops(Samples):
    """Random crops of JPEG files: pixels (3, S, S), class (), key (), measurements (T+1,)."""

    def __init__(self, paths: Sequence[Path], stage: Stage, seed: int) -> None:
        self._paths = paths
        self._stage = stage
        self._seed = seed
        self.transforms = tuple(step.name for step in (*stage.sample, *stage.batch))

    def __len__(self) -> int:
        return DATASET_SIZE

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[Batch]:
        """Return the samples of a batch; a loader asks here if it can, so we see whole batches."""
        samples = [self._readable(index) for index in indices]
        return self._finish(samples) if self._stage.batch else samples

    def _finish(self, samples: list[Batch]) -> list[Batch]:
        """Do to all samples at once what the stage does to batches."""
        stacked = (torch.stack(tensors) for tensors in zip(*samples, strict=True))
        pixels, labels, keys, measured = stacked  # (B, 3, S, S), (B,), (B,), (B, T+1)
        pixels, took_ms = run(self._stage.batch, pixels, keys)
        measured[:, len(self._stage.sample) : -1] = torch.tensor(took_ms) / len(samples)
        return list(zip(pixels, labels, keys, measured, strict=True))

    def _readable(self, index: int) -> Batch:
        """Return sample `index`, or the next one whose file can be read."""
        for skipped in range(PATIENCE):
            try:
                return self._sample((index + skipped) % DATASET_SIZE, skipped)
            except UNREADABLE as error:
                last = error
        path = self._path((index + PATIENCE - 1) % DATASET_SIZE)
        raise RuntimeError(
            f"{PATIENCE} unreadable JPEG files in a row, the last {path}: {last}; "
            f"delete {path.parent} to have its files written anew"
        ) from last

    def _sample(self, index: int, skipped: int) -> Batch:
        key = torch.tensor(random.Random(self._seed * DATASET_SIZE + index).getrandbits(KEY_BITS))
        pixels, took_ms = run(self._stage.sample, self._path(index), key)
        if pixels.shape != (3, SIDE, SIDE):
            raise ValueError(f"no crop of (3, {SIDE}, {SIDE}) but {tuple(pixels.shape)}")
        not_yet = [0.0] * len(self._stage.batch)
        measured = torch.tensor([*took_ms, *not_yet, float(skipped)])
        return pixels, torch.tensor(index % NUM_CLASSES), key, measured

    def _path(self, index: int) -> Path:
        return self._paths[index % len(self._paths)]


def build_model(scale: Scale) -> nn.Sequential:
    """Return (B, 3, S, S) → (B, 10): convolutions, each but the outer two halving the side."""
    channels = scale.channels
    layers: list[nn.Module] = [
        nn.Conv2d(3, channels, kernel_size=3, stride=scale.stride, padding=1),
        nn.ReLU(inplace=True),
    ]
    for _ in range(int(log2(SIDE // scale.stride))):
        layers += [
            nn.Conv2d(channels, channels, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),  # half the side
        ]
    layers += [nn.Conv2d(channels, NUM_CLASSES, kernel_size=3, padding=1), nn.Flatten()]
    return nn.Sequential(*layers)


class JpegInput:
    """The workload: `first` copies, and makes what the workers left; `second` trains."""

    def __init__(self, values: Mapping[str, Value], device: torch.device) -> None:
        self._files = JpegFiles.cached(FILES)
        if not self._files.are_whole():
            # standard output may be a bare run's one line of JSON
            print(
                f"writing {self._files.count} JPEG files ({self._files.mib} MiB) "
                f"to {self._files.directory}, once",
                file=sys.stderr,
                flush=True,
            )
            self._files.write()
        self._seed = int(values["seed"])
        torch.manual_seed(self._seed)  # weights are drawn on the host: equal on every device
        self.model = build_model(SCALES[str(values["model_scale"])]).train().to(device)
        self._classifier = Learner(self.model, nn.CrossEntropyLoss(), device)
        self._device = device
        yuv(device)  # sync: here, so that no step waits for it

    def configure(self, values: Mapping[str, Value]) -> None:
        """Compute the model as the levers of the trade say; finish samples as `input` says."""
        self._classifier.configure(Trade.of(values))
        self._stage = STAGES[str(values["input"])]

    def samples(self, values: Mapping[str, Value]) -> Samples:
        """Return crops of the files, made as far as the stage makes them in the workers."""
        return JpegCrops(self._files.paths, STAGES[str(values["input"])], self._seed)

    @staticmethod
    def refusal(values: Mapping[str, Value], _device: torch.device) -> str | None:
        """Return why a stage has no decoder here."""
        if values["input"] != "region_decode":
            return None
        try:
            nvimgcodec()  # before loader workers are forked, so that it loads once
        except ImportError as error:
            others = ", ".join(name for name in STAGES if name != "region_decode")
            return (
                f"input=region_decode: needs nvidia-nvimgcodec-cu13 (or -cu12), which does not "
                f"load here ({error}); valid here: {others}"
            )
        return None

    @staticmethod
    def host_bytes(values: Mapping[str, Value], device: torch.device) -> tuple[int, int]:
        """Return the bytes of one batch and, on a CPU, of what training on it leaves."""
        stage, scale = STAGES[str(values["input"])], SCALES[str(values["model_scale"])]
        batch_size = int(values["batch_size"])
        crops = batch_size * SIDE**2  # pixels
        batch = crops * 3 * (1 if stage.device else 4)
        if device.type != "cpu":
            return batch, 0
        # first: hashes (int64) twice, YUV (float32) twice. second: the outer layers' maps, one
        # and a half for each block of a quarter of the size, with gradients: 7 × the widest
        first = crops * (2 * 8 + 2 * 3 * 4) if stage.device else 0
        second = crops // scale.stride**2 * 7 * scale.channels * 4
        return batch, first + second

    def first(self, batch: Batch, mark: Mark) -> Prepared:
        """Copy the batch to the device; mask and convert it there, if the stage does."""
        pixels, labels, keys = batch  # (B, 3, S, S) float32 or uint8, (B,) int64, (B,) int64
        mark("copy")
        # from pageable memory the host waits here until the driver has staged the copy
        pixels = pixels.to(self._device, non_blocking=True)
        labels = labels.to(self._device, non_blocking=True)
        keys = keys.to(self._device, non_blocking=True)
        mark("first")
        for step in self._stage.device:
            pixels = step.apply(pixels, keys)
        return pixels, labels  # (B, 3, S, S) float32, (B,) int64

    def second(self, prepared: Prepared, mark: Mark) -> Tensor:
        """Train on crops and classes."""
        pixels, labels = prepared
        return self._classifier.train(pixels, labels, mark)


WORKLOAD = JpegInput
