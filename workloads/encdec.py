"""Image segmentation with a frozen encoder and a trained decoder.

The source's first experiment (C. Rand, Pipelining AI/ML Training Workloads with CUDA
Streams, 2025). The encoder is frozen, so it does not depend on the decoder's training and may run
ahead: it is the first half of the step, the decoder the second.

Shapes: B batch, S image side (256), C classes (10), E encoder's last channels (4096).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log2

import torch
from torch import Tensor, nn

from workloads.compute_options import ComputeOptions, Learner, Net
from workloads.levers import Value
from workloads.synthetic import RandomSamples
from workloads.workload import Batch, Mark, Prepared, Samples

NUM_CLASSES = 10


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Size of images and model."""

    image_size: int
    """S: a power of two; the encoder halves it down to 1."""
    channels: int
    """Channels of the first layer; every further layer has twice as many."""


SCALES = {
    "full": Scale(image_size=256, channels=16),  # the source's
    "small": Scale(image_size=64, channels=8),
}


class RandomSegmentation(RandomSamples):
    """Random images with a random class for every pixel."""

    def __getitem__(self, index: int) -> Batch:
        side = self._image_size
        generator = self.generator(index)
        image = torch.rand(3, side, side, generator=generator)  # (3, S, S) float32
        target = torch.randint(0, NUM_CLASSES, (side, side), generator=generator)  # (S, S) int64
        return image, target


def build_encoder(scale: Scale) -> nn.Sequential:
    """Return (B, 3, S, S) → (B, E, 1, 1): a 1×1 convolution, then 2×2 ones of stride 2."""
    channels = scale.channels
    layers: list[nn.Module] = [nn.Conv2d(3, channels, kernel_size=1)]
    for _ in range(int(log2(scale.image_size))):
        layers += [
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, 2 * channels, kernel_size=2, stride=2),  # half the side
        ]
        channels *= 2
    return nn.Sequential(*layers)


def build_decoder(scale: Scale) -> nn.Sequential:
    """Return (B, E, 1, 1) → (B, C, S, S): the encoder mirrored, and a 3×3 convolution."""
    channels = scale.channels * scale.image_size  # E
    layers: list[nn.Module] = []
    for _ in range(int(log2(scale.image_size))):
        layers += [
            nn.ConvTranspose2d(channels, channels // 2, kernel_size=2, stride=2),  # twice the side
            nn.ReLU(inplace=True),
        ]
        channels //= 2
    layers.append(nn.Conv2d(channels, NUM_CLASSES, kernel_size=3, padding=1))
    return nn.Sequential(*layers)


class EncoderDecoder:
    """The workload: `prepare` copies and encodes, `train` trains the decoder."""

    def __init__(self, values: Mapping[str, Value], device: torch.device) -> None:
        self._scale = SCALES[str(values["model_scale"])]
        self._seed = int(values["seed"])
        torch.manual_seed(self._seed)  # weights are drawn on the host: equal on every device
        self.encoder = build_encoder(self._scale).requires_grad_(False).eval().to(device)
        self.model = build_decoder(self._scale).train().to(device)
        self._encode = Net(self.encoder, device)
        self._decoder = Learner(self.model, nn.CrossEntropyLoss(), device)
        self._device = device

    def configure(self, values: Mapping[str, Value]) -> None:
        """Configure the optimizations of both models."""
        options = ComputeOptions.of(values)
        self._encode.configure(options)
        self._decoder.configure(options)

    def samples(self, _values: Mapping[str, Value]) -> Samples:
        """Return random images with their classes."""
        return RandomSegmentation(self._scale.image_size, self._seed)

    @staticmethod
    def refusal(_values: Mapping[str, Value], _device: torch.device) -> str | None:
        """Every combination works."""
        return None

    @staticmethod
    def host_bytes(values: Mapping[str, Value], device: torch.device) -> tuple[int, int]:
        """Return the host bytes of one batch and, on a CPU, of the activations."""
        scale = SCALES[str(values["model_scale"])]
        batch_size = int(values["batch_size"])
        pixels = scale.image_size**2
        batch = batch_size * pixels * (3 * 4 + 8)  # float32 channels, int64 class
        if device.type != "cpu":
            return batch, 0
        # every layer has half the values of the one before, so all have about 2 × the widest: of
        # both halves, with gradients of the second; then logits and their gradient
        activations = batch_size * pixels * (3 * 2 * scale.channels + 2 * NUM_CLASSES) * 4
        return batch, activations

    def prepare(self, batch: Batch, mark: Mark) -> Prepared:
        """Copy the batch to the device and encode the images."""
        images, labels = batch  # (B, 3, S, S) float32, (B, S, S) int64
        mark("copy")
        # from pageable memory the host waits here until the driver has staged the copy
        images = images.to(self._device, non_blocking=True)
        labels = labels.to(self._device, non_blocking=True)
        mark("prepare")
        with torch.no_grad():
            features = self._encode(images)  # (B, E, 1, 1)
        return features, labels

    def train(self, prepared: Prepared, mark: Mark) -> Tensor:
        """Train the decoder on features and labels."""
        features, labels = prepared
        return self._decoder.train(features, labels, mark)


WORKLOAD = EncoderDecoder
