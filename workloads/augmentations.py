"""The source's six transforms: of one sample in a loader worker, or of a batch on the device.

Convert, crop, enlarge, rotate, blur, normalise (C. Rand, Pipelining AI/ML Training Workloads
with CUDA Streams, 2025). `draw` draws everything random about a sample, as four numbers. The
transforms are functions of the pixels and these numbers. So a sample is the same wherever it is
augmented, and in whichever batch.

A sample goes through torchvision, one transform after the other. A batch goes through the same
arithmetic once for all its images: crops, angles and sigmas of the images are a dimension of a
tensor instead of a Python loop. So the number of kernels does not grow with the batch, and no
number is copied to or from the host. The rotation also exists as the source's loop, to show what
that costs.

Shapes: B batch, S image side, C = S / 2 crop side, K = 7 side of the blur's kernel.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial
from math import sqrt
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import conv2d, grid_sample, pad
from torchvision.transforms.v2 import functional as tv

MAX_ANGLE = 45.0
"""Largest rotation either way, in degrees."""
KERNEL_SIZE = 7
SIGMAS = (0.1, 2.0)
"""Range of the blur, in pixels; torchvision's default for GaussianBlur."""
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
"""Like `MEAN`: red, green, blue of ImageNet."""

ANGLE = 2
"""Index of the angle among the four parameters: top, left, angle, sigma."""
TRANSFORMS = ("to_dtype", "crop", "resize", "rotate", "blur", "normalize")
"""The transforms that `augment_sample` times."""

Rotate: TypeAlias = Callable[[Tensor], Tensor]
"""Images (B, 3, S, S) → the same, each turned by its angle."""


def crop_side(image_size: int) -> int:
    """Return the crop's side C for the image's side S."""
    return image_size // 2


def draw(image_size: int, generator: torch.Generator) -> Tensor:
    """Draw the random parameters of a sample: (4,) float64 top, left, angle, sigma."""
    corners = image_size - crop_side(image_size) + 1
    corner = torch.randint(0, corners, (2,), generator=generator)
    angle = torch.empty(1, dtype=torch.float64)
    angle.uniform_(-MAX_ANGLE, MAX_ANGLE, generator=generator)
    sigma = torch.empty(1, dtype=torch.float64)
    sigma.uniform_(*SIGMAS, generator=generator)
    return torch.cat([corner, angle, sigma])


def augment_sample(image: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
    """Augment an image (3, S, S) uint8 by torchvision, in the source's order.

    Returns the image as float32, and the milliseconds (T,) of each transform.
    """
    size = image.shape[-1]
    side = crop_side(size)
    top, left, angle, sigma = parameters.tolist()  # on the host, in a loader worker
    transforms: tuple[Callable[[Tensor], Tensor], ...] = (
        partial(tv.to_dtype, dtype=torch.float32, scale=True),
        partial(tv.crop, top=int(top), left=int(left), height=side, width=side),
        partial(tv.resize, size=[size, size]),
        partial(tv.rotate, angle=angle),
        partial(tv.gaussian_blur, kernel_size=[KERNEL_SIZE] * 2, sigma=[sigma] * 2),
        partial(tv.normalize, mean=list(MEAN), std=list(STD)),
    )
    borders = [time.perf_counter()]
    for transform in transforms:
        image = transform(image)
        borders.append(time.perf_counter())
    return image, 1e3 * torch.tensor(borders, dtype=torch.float64).diff().float()


def rotate_each(images: Tensor, angles: Iterable[float]) -> Tensor:
    """Rotate images (B, 3, S, S) one at a time, by angles on the host."""
    # sync: torchvision copies a matrix and a scale to the device for every image, and the host
    # waits for each: 2·B times a batch. The loop is here to show this cost
    turned = [tv.rotate(image, angle) for image, angle in zip(images, angles, strict=True)]
    return torch.stack(turned)


class BatchAugmentation:
    """The transforms of a batch of one image size.

    Constants are put on the device once; made in every step, they would be copied every time.
    """

    def __init__(self, image_size: int, device: torch.device) -> None:
        self._size = image_size
        self._mean = torch.tensor(MEAN, device=device).view(3, 1, 1)
        self._std = torch.tensor(STD, device=device).view(3, 1, 1)
        self._channels = torch.arange(3, device=device).view(3, 1, 1)
        self._offsets = torch.arange(crop_side(image_size), device=device)  # (C,)
        reach = KERNEL_SIZE // 2 / sqrt(2)
        self._distances = torch.linspace(-reach, reach, KERNEL_SIZE, device=device)  # (K,) of k/√2
        self._pixels = _centred_pixels(image_size, device)  # (1, S·S, 3)

    def __call__(self, images: Tensor, parameters: Tensor, rotate: Rotate) -> Tensor:
        """Augment images (B, 3, S, S) uint8 by parameters (B, 4); returns float32."""
        top, left, _, sigma = parameters.unbind(dim=1)  # (B,) each
        # cropped before the conversion: the same numbers from a quarter of the bytes
        images = self.crop(images, top.long(), left.long())  # (B, 3, C, C) uint8
        images = tv.to_dtype(images, torch.float32, scale=True)
        images = tv.resize(images, [self._size, self._size])  # (B, 3, S, S)
        images = rotate(images)
        return self.normalize(self.blur(images, sigma))

    def crop(self, images: Tensor, top: Tensor, left: Tensor) -> Tensor:
        """Return (B, 3, C, C) from images (B, 3, S, S), each from its corner, (B,) int64.

        The source's roi_align interpolates between pixels by default. This copies pixels, in one
        kernel and for any type.
        """
        batch = torch.arange(len(images), device=images.device)
        rows = top[:, None] + self._offsets  # (B, C)
        columns = left[:, None] + self._offsets  # (B, C)
        return images[
            batch[:, None, None, None],
            self._channels,
            rows[:, None, :, None],
            columns[:, None, None, :],
        ]

    def rotate(self, images: Tensor, angles: Tensor) -> Tensor:
        """Rotate images (B, 3, S, S) by angles (B,) float64 in degrees: nearest pixel, black edge.

        The result is torchvision's to the bit: angles are float64, and pixels are counted from the
        centre. `torch.nn.functional.affine_grid` counts them in [-1, 1], and so sometimes rounds to
        the neighbouring pixel.
        """
        radians = angles.deg2rad()
        cos, sin = radians.cos(), radians.sin()
        nowhere = torch.zeros_like(cos)  # no shift: images rotate about their centre
        # maps an output pixel (x, y, 1) to its input position: a column for x, one for y
        to_input = torch.stack([cos, sin, -sin, cos, nowhere, nowhere], dim=1).float()
        to_input = to_input.view(-1, 3, 2) / (0.5 * self._size)  # (B, 3, 2); [-1, 1] is the image
        pixels = self._pixels.expand(len(images), -1, -1)  # (B, S·S, 3), not copied
        grid = pixels.bmm(to_input).view(-1, self._size, self._size, 2)  # (B, S, S, 2)
        return grid_sample(images, grid, mode="nearest", padding_mode="zeros", align_corners=False)

    def blur(self, images: Tensor, sigmas: Tensor) -> Tensor:
        """Blur images (B, 3, S, S), each by its own sigma, (B,) in pixels.

        This is one depthwise convolution: every channel of every image is a channel with its own
        kernel. For float32 in NCHW order torch has a CUDA kernel for this, which never uses TF32.
        """
        batch, channels, height, width = images.shape
        scaled = self._distances / sigmas.float()[:, None]  # (B, K)
        line = torch.softmax(-scaled.square(), dim=1)  # (B, K): a Gaussian at k, of sum 1
        kernels = line[:, None, :, None] * line[:, None, None, :]  # (B, 1, K, K)
        kernels = kernels.expand(-1, channels, -1, -1).reshape(-1, 1, KERNEL_SIZE, KERNEL_SIZE)
        planes = images.reshape(1, batch * channels, height, width)
        planes = pad(planes, [KERNEL_SIZE // 2] * 4, mode="reflect")
        return conv2d(planes, kernels, groups=batch * channels).view_as(images)

    def normalize(self, images: Tensor) -> Tensor:
        """Shift and scale images (B, 3, S, S) by channel."""
        return (images - self._mean) / self._std


def _centred_pixels(side: int, device: torch.device) -> Tensor:
    """Return (1, S·S, 3): x, y and 1 of every pixel, counted from the image's centre."""
    axis = torch.linspace((1 - side) / 2, (side - 1) / 2, side, device=device)  # …, -½, ½, …
    y, x = torch.meshgrid(axis, axis, indexing="ij")  # (S, S) each
    return torch.stack([x, y, torch.ones_like(x)], dim=-1).view(1, side * side, 3)
