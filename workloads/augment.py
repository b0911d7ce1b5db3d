"""Image classification with heavy augmentation: in the loader workers, or on the GPU.

The source's second experiment (C. Rand, Pipelining AI/ML Training Workloads with CUDA
Streams, 2025). Augmenting in the loader workers starves the GPU; augmenting on the GPU gives
it the same work in a fraction of the time, and as no weight is involved it may run ahead of
the training: it is the first half of the step, the classifier the second.

What is random about a sample belongs to the sample: it is drawn from the sample's own
generator and travels in the batch until it has been applied. So moving the augmentation
from workers to GPU, looping or not, pipelining or not: nothing changes what is trained on.

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
    """Random images of a random class, and what an augmentation of each is to draw."""

    def __getitem__(self, index: int) -> Batch:
        side = self._image_size
        generator = self.generator(index)
        # eight values a draw: the images stand for files, which cost a worker no drawing
        words = torch.empty(3, side, side // 8, dtype=torch.int64)
        image = words.random_(-(2**63), None, generator=generator).view(torch.uint8)  # (3, S, S)
        label = torch.randint(0, NUM_CLASSES, (), generator=generator)  # () int64
        return image, label, draw(side, generator)


class AugmentedImages(RawImages):
    """The same, augmented where they are made."""

    transforms = TRANSFORMS

    def __getitem__(self, index: int) -> Batch:
        image, label, parameters = super().__getitem__(index)
        image, milliseconds = augment_sample(image, parameters)  # (3, S, S) float32, (T,)
        return image, label, torch.cat([milliseconds, torch.zeros(1)])  # nothing is passed over


SAMPLES: dict[str, type[RawImages]] = {"cpu": AugmentedImages, "gpu": RawImages}
"""What a loader worker makes, by `augment_on`."""


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
        """Compute the model as the optimizations say, and rotate as `rotation` does."""
        self._classifier.configure(ComputeOptions.of(values))
        self._one_by_one = values["rotation"] == "per_image"

    def samples(self, values: Mapping[str, Value]) -> Samples:
        """Return images that are augmented, or that are to be."""
        return SAMPLES[str(values["augment_on"])](self._scale.image_size, self._seed)

    @staticmethod
    def refusal(_values: Mapping[str, Value], _device: torch.device) -> str | None:
        """Every combination works."""
        return None

    @staticmethod
    def host_bytes(values: Mapping[str, Value], device: torch.device) -> tuple[int, int]:
        """Return the bytes of one batch and, on a CPU, of the activations it leaves."""
        scale = SCALES[str(values["model_scale"])]
        batch_size = int(values["batch_size"])
        pixels = scale.image_size**2
        augmented = batch_size * pixels * 3 * 4  # float32
        batch = augmented if values["augment_on"] == "cpu" else augmented // 4  # uint8
        if device.type != "cpu":
            return batch, 0
        # every layer has half the values of the one before: Σ ≈ 2 × the widest, with gradients;
        # beside them eight times the images: in and out of transforms, padded, the rotation's
        # grid, prepared ahead, and in the order that the CPU's convolutions want
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
        """Return the rotation by parameters (B, 4): as the loader left them, and on the device."""
        if self._one_by_one:
            # sync: with data=resident only; a loader leaves the angles on the host
            return partial(rotate_each, angles=loaded[:, ANGLE].tolist())
        return partial(self._augment.rotate, angles=parameters[:, ANGLE])


WORKLOAD = Augment
