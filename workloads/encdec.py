"""Image segmentation with a frozen encoder and a trained decoder.

The source's first experiment (C. Rand, Pipelining AI/ML Training Workloads with CUDA
Streams, 2025). Weights that take no gradient do not depend on the decoder's training, so
the encoder may run ahead: it is the first half of the step, the decoder the second.

Shapes: B batch, S image side (256), C classes (10), E encoder's last channels (4096).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log2

import torch
from torch import Tensor, nn

from workloads.levers import Value
from workloads.workload import Batch, Mark, Prepared, Samples

NUM_CLASSES = 10
DATASET_SIZE = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large images and model are."""

    image_size: int
    """S: a power of two; the encoder halves it down to 1."""
    channels: int
    """Of the first layer; every further layer has twice as many."""


SCALES = {
    "full": Scale(image_size=256, channels=16),  # the source's
    "small": Scale(image_size=64, channels=8),
}


class RandomSegmentation(Samples):
    """Random images with a random class for every pixel."""

    def __init__(self, image_size: int, seed: int) -> None:
        self._image_size = image_size
        self._seed = seed

    def __len__(self) -> int:
        return DATASET_SIZE

    def __getitem__(self, index: int) -> Batch:
        side = self._image_size
        generator = torch.Generator().manual_seed(self._seed * DATASET_SIZE + index)
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
    """The workload: `first` copies and encodes, `second` trains the decoder."""

    def __init__(self, values: Mapping[str, Value], device: torch.device) -> None:
        scale = SCALES[str(values["model_scale"])]
        seed = int(values["seed"])
        torch.manual_seed(seed)  # the weights are drawn on the host: equal on every device
        self.dataset = RandomSegmentation(scale.image_size, seed)
        self.encoder = build_encoder(scale).requires_grad_(False).eval().to(device)
        self.decoder = build_decoder(scale).train().to(device)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.decoder.parameters(), lr=1e-3)  # torch's default lr
        self._device = device

    @staticmethod
    def settle(
        settings: dict[str, str], device: torch.device
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        """Replace model_scale=auto by full on a GPU and small on a CPU."""
        if settings["model_scale"] != "auto":
            return settings, ()
        if device.type == "cuda":
            return settings | {"model_scale": "full"}, ()
        note = "model_scale=small: chosen for the CPU; model_scale=full is the source's model"
        return settings | {"model_scale": "small"}, (note,)

    @staticmethod
    def host_bytes(values: Mapping[str, Value], device: torch.device) -> tuple[int, int]:
        """Return the bytes of one batch and, on a CPU, of the activations it leaves."""
        scale = SCALES[str(values["model_scale"])]
        batch_size = int(values["batch_size"])
        pixels = scale.image_size**2
        batch = batch_size * pixels * (3 * 4 + 8)  # float32 channels, int64 class
        if device.type != "cpu":
            return batch, 0
        # every layer has half the values of the one before: Σ ≈ 2 × the widest, kept for both
        # halves, with gradients for the second; then logits and their gradient
        activations = batch_size * pixels * (3 * 2 * scale.channels + 2 * NUM_CLASSES) * 4
        return batch, activations

    def first(self, batch: Batch, mark: Mark) -> Prepared:
        """Copy the batch to the device and encode the images."""
        images, labels = batch  # (B, 3, S, S) float32, (B, S, S) int64
        mark("copy")
        # from pageable memory the host waits here until the driver has staged the copy
        images = images.to(self._device, non_blocking=True)
        labels = labels.to(self._device, non_blocking=True)
        mark("first")
        with torch.no_grad():
            features = self.encoder(images)  # (B, E, 1, 1)
        return features, labels

    def second(self, prepared: Prepared, mark: Mark) -> Tensor:
        """Train the decoder on features and labels."""
        features, labels = prepared
        mark("forward")
        self.optimizer.zero_grad()
        logits = self.decoder(features)  # (B, C, S, S)
        loss: Tensor = self.criterion(logits, labels)  # ()
        mark("backward")
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        mark("optimizer")
        self.optimizer.step()
        return loss.detach()


WORKLOAD = EncoderDecoder
