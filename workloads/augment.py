"""Image classification with heavy augmentation: in the loader workers, or on the GPU.

The source's second experiment (C. Rand, Pipelining AI/ML Training Workloads with CUDA
Streams, 2025). Augmenting in the loader workers starves the GPU. The GPU does the same work in a
fraction of the time. As it needs no weights, it may run ahead of the training: it is the first half
of the step, the classifier the second.

The random parameters of a sample are drawn from the sample's own generator, and are in the batch
until they are applied. So the trained samples are the same whether workers or the GPU augment, in a
loop or not, pipelined or not.

Shapes: B batch, S image side (256), T transforms (6).
"""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from workloads.augmentations import (
    ANGLE,
    TRANSFORMS,
    BatchAugmentation,
    Rotate,
    augment_sample,
    draw,
    rotate_each,
)
from workloads.compute_options import ComputeOptions, Learner
from workloads.encdec import NUM_CLASSES, SCALES, Scale, build_encoder
from workloads.levers import Value
from workloads.synthetic import RandomSamples
from workloads.workload import Batch, Mark, Prepared, Samples


class RawImages(RandomSamples):
    """Random images with a random class, and the random parameters of their augmentation."""

    def __getitem__(self, index: int) -> Batch:
        side = self._image_size
        generator = self.generator(index)
        # eight values per draw, to be fast: real images come from files
        words = torch.empty(3, side, side // 8, dtype=torch.int64)
        image = words.random_(-(2**63), None, generator=generator).view(torch.uint8)  # (3, S, S)
        label = torch.randint(0, NUM_CLASSES, (), generator=generator)  # () int64
        return image, label, draw(side, generator)


class AugmentedImages(RawImages):
    """The same images, augmented in the loader worker."""

    transforms = TRANSFORMS

    def __getitem__(self, index: int) -> Batch:
        image, label, parameters = super().__getitem__(index)
        image, milliseconds = augment_sample(image, parameters)  # (3, S, S) float32, (T,)
        return image, label, torch.cat([milliseconds, torch.zeros(1)])  # 0 skipped samples


SAMPLES: dict[str, type[RawImages]] = {"cpu": AugmentedImages, "batched": RawImages}
"""The dataset, by `augment_on`."""


def build_classifier(scale: Scale) -> nn.Sequential:
    """Return (B, 3, S, S) → (B, 10): the first experiment's encoder, and a linear layer."""
    features = scale.channels * scale.image_size  # after the last layer, 1×1 pixel
    return nn.Sequential(build_encoder(scale), nn.Flatten(), nn.Linear(features, NUM_CLASSES))


class Augment:
    """The workload: `prepare` copies and augments, `train` trains the classifier."""

    def __init__(self, values: Mapping[str, Value], device: torch.device) -> None:
        self._scale = SCALES[str(values["model_scale"])]
        self._seed = int(values["seed"])
        torch.manual_seed(self._seed)  # weights are drawn on the host: equal on every device
        self.model = build_classifier(self._scale).train().to(device)
        self._classifier = Learner(self.model, nn.CrossEntropyLoss(), device)
        self._augment = BatchAugmentation(self._scale.image_size, device)
        self._device = device
        self._one_by_one = False

    def configure(self, values: Mapping[str, Value]) -> None:
        """Configure the model's optimizations, and the form of the rotation."""
        self._classifier.configure(ComputeOptions.of(values))
        self._one_by_one = values["rotation"] == "per_image"

    def samples(self, values: Mapping[str, Value]) -> Samples:
        """Return the images, augmented if the loader workers do that."""
        return SAMPLES[str(values["augment_on"])](self._scale.image_size, self._seed)

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
        augmented = batch_size * pixels * 3 * 4  # float32
        batch = augmented if values["augment_on"] == "cpu" else augmented // 4  # uint8
        if device.type != "cpu":
            return batch, 0
        # every layer has half the values of the one before, so all have about 2 × the widest, with
        # gradients; and eight times the images: in and out of transforms, padded, the rotation's
        # grid, prepared ahead, and in the memory order of the CPU's convolutions
        activations = batch_size * pixels * (2 * 2 * scale.channels) * 4
        return batch, activations + 8 * augmented

    def prepare(self, batch: Batch, mark: Mark) -> Prepared:
        """Copy the batch to the device and augment the images, if they are not yet."""
        mark("copy")
        # from pageable memory the host waits here until the driver has staged the copies
        images, labels, *parameters = [t.to(self._device, non_blocking=True) for t in batch]
        mark("prepare")
        if not parameters:  # the loader workers have applied them
            return images, labels
        rotate = self._rotation(batch[-1], parameters[0])
        with torch.no_grad():
            return self._augment(images, parameters[0], rotate), labels

    def train(self, prepared: Prepared, mark: Mark) -> Tensor:
        """Train the classifier on images (B, 3, S, S) float32 and labels (B,)."""
        images, labels = prepared
        return self._classifier.train(images, labels, mark)

    def _rotation(self, loaded: Tensor, parameters: Tensor) -> Rotate:
        """Return the rotation by parameters (B, 4); `loaded` are the same, before the copy."""
        if self._one_by_one:
            # sync: with data=resident only; a loader leaves the angles on the host
            return partial(rotate_each, angles=loaded[:, ANGLE].tolist())
        return partial(self._augment.rotate, angles=parameters[:, ANGLE])


WORKLOAD = Augment
