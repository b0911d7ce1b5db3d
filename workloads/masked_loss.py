"""Segmentation with a masked loss: forms of it that make the host wait, and forms that do not.

The source's example (C. Rand, PyTorch Model Performance Analysis and Optimization, Part 3,
2023). Some pixels are labelled "ignore", those of the background class are ignored too, and a
batch is trained on only if at least two labels occur in it. Written directly, with indices, sets
and masks, nearly every line has a result whose *size* depends on the data. The host must read it:
the host waits for the device, and then the device for the host.

The loss has three parts. Each form below is the one before with one part exchanged:

                 fold background in   two labels occur?        mean over what is left
    nonzero      at indices           a set's size (host)      selected by a mask
    where        by torch.where       a set's size (host)      selected by a mask
    counted      by torch.where       sort, count the changes  selected by a mask
    ignore_index by torch.where       sort, count the changes  all pixels, ignored weigh 0
    minmax       by torch.where       least ≠ greatest label   all pixels, ignored weigh 0

The first four are the source's; the fifth is gpudash's. All compute the same loss and gradients, up
to the order in which floats are added. "Two labels" are those of the folded target, in which
"ignore" is a label too: one class beside ignored pixels is enough. With fewer, loss and gradients
are exactly 0. If every pixel is ignored, the source's forms give NaN, 0 · (0 / 0); here a mean
divides by at least 1.

Only the copy does not depend on the weights: it is the first half of the step.

Shapes: B batch, S image side (256), C classes (10), P = B·S·S pixels, N of them not ignored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from workloads.compute_options import ComputeOptions, Learner
from workloads.levers import Value
from workloads.synthetic import RandomSamples
from workloads.workload import Batch, Mark, Prepared, Samples

NUM_CLASSES = 10
IGNORED = -1
BACKGROUND = NUM_CLASSES - 1
CHANNELS = 10
"""Channels of every hidden layer."""


# ---- fold background in: labels (B, S, S) → target (B, S, S), its background ignored


def fold_at_indices(labels: Tensor) -> Tensor:
    """Find the background's indices, and write to them."""
    # A copy, unlike the source's: a replayed batch would have no background the second time, and
    # this form would look cheaper than it is.
    target = labels.clone()
    # sync: how many places there are, M
    places = torch.nonzero(labels == BACKGROUND, as_tuple=True)  # 3 × (M,) int64
    target[places] = IGNORED
    return target


def fold_by_where(labels: Tensor) -> Tensor:
    """Choose a label at every pixel."""
    return torch.where(labels == BACKGROUND, IGNORED, labels)


# ---- two labels occur? target (B, S, S) → a bool, on the host or () on the device


def two_in_set(target: Tensor) -> bool:
    """Collect the labels that occur, and count them on the host."""
    labels = torch.unique(target)  # sync: how many labels there are
    return len(labels) >= 2


def two_in_order(target: Tensor) -> Tensor:
    """Sort all pixels and count the changes of label; the result stays on the device."""
    ordered = target.flatten().sort().values  # (P,)
    changes = (ordered[1:] != ordered[:-1]).sum()  # ()
    return changes >= 1


def two_at_the_ends(target: Tensor) -> Tensor:
    """Compare the least label with the greatest: one pass, without sorting."""
    least, greatest = torch.aminmax(target)  # (), ()
    return least != greatest


# ---- mean over what is left: logits (B, C, S, S), target (B, S, S) → loss ()


def mean_by_mask(logits: Tensor, target: Tensor) -> Tensor:
    """Select the pixels that count by a mask, and average over them."""
    mask = target != IGNORED  # (B, S, S)
    spread = mask.unsqueeze(-1).expand(-1, -1, -1, NUM_CLASSES)  # (B, S, S, C), as in the source
    # sync: how many pixels count
    labels = target[mask]  # (N,)
    # sync: how many values they have; and once more in backward, which selects again
    selected = logits.permute(0, 2, 3, 1)[spread]  # (N·C,)
    logits = selected.reshape(-1, NUM_CLASSES)  # (N, C)
    return functional.cross_entropy(logits, labels, reduction="sum") / max(len(labels), 1)


def mean_in_place(logits: Tensor, target: Tensor) -> Tensor:
    """Keep all pixels, with weight 0 for ignored ones, and divide by the number of the others."""
    losses = functional.cross_entropy(logits, target, ignore_index=IGNORED, reduction="sum")
    return losses / (target != IGNORED).sum().clamp(min=1)


@dataclass(frozen=True, kw_only=True)
class MaskedLoss:
    """The cross entropy of the pixels that count, or 0 if fewer than two labels occur."""

    fold: Callable[[Tensor], Tensor]
    two_labels: Callable[[Tensor], Tensor | bool]
    mean: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss () of logits (B, C, S, S) for labels (B, S, S)."""
        target = self.fold(labels)
        return self.two_labels(target) * self.mean(logits, target)


NONZERO = MaskedLoss(fold=fold_at_indices, two_labels=two_in_set, mean=mean_by_mask)
WHERE = replace(NONZERO, fold=fold_by_where)
COUNTED = replace(WHERE, two_labels=two_in_order)
IGNORE_INDEX = replace(COUNTED, mean=mean_in_place)
MINMAX = replace(IGNORE_INDEX, two_labels=two_at_the_ends)

LOSSES = {
    "nonzero": NONZERO,
    "where": WHERE,
    "counted": COUNTED,
    "ignore_index": IGNORE_INDEX,
    "minmax": MINMAX,
}
WAITING = ("nonzero", "where", "counted")
"""The forms in which the host reads sizes from the device."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Size of images and model."""

    image_size: int
    """S."""
    hidden: int
    """Number of convolutions between the first and the last."""


SCALES = {
    "full": Scale(image_size=256, hidden=10),  # the source's
    "small": Scale(image_size=32, hidden=4),
}


class RandomLabels(RandomSamples):
    """Random images; every pixel has a random class or `IGNORED`."""

    def __getitem__(self, index: int) -> Batch:
        side = self._image_size
        generator = self.generator(index)
        image = torch.randn(3, side, side, generator=generator)  # (3, S, S) float32
        labels = torch.randint(IGNORED, NUM_CLASSES, (side, side), generator=generator)
        return image, labels  # … (S, S) int64


def build_model(scale: Scale) -> nn.Sequential:
    """Return (B, 3, S, S) → (B, C, S, S): 3×3 convolutions that keep the side."""
    layers: list[nn.Module] = [nn.Conv2d(3, CHANNELS, kernel_size=3, padding=1)]
    for _ in range(scale.hidden):
        layers += [
            nn.ReLU(inplace=True),
            nn.Conv2d(CHANNELS, CHANNELS, kernel_size=3, padding=1),
        ]
    layers += [nn.ReLU(inplace=True), nn.Conv2d(CHANNELS, NUM_CLASSES, kernel_size=3, padding=1)]
    return nn.Sequential(*layers)


class MaskedSegmentation:
    """The workload: `prepare` copies, `train` trains under the chosen form of the loss."""

    def __init__(self, values: Mapping[str, Value], device: torch.device) -> None:
        self._scale = SCALES[str(values["model_scale"])]
        self._seed = int(values["seed"])
        torch.manual_seed(self._seed)  # weights are drawn on the host: equal on every device
        self.model = build_model(self._scale).train().to(device)
        self._learner = Learner(self.model, LOSSES[str(values["loss"])], device)
        self._device = device

    def configure(self, values: Mapping[str, Value]) -> None:
        """Configure the loss and the model's optimizations."""
        self._learner.minimise(LOSSES[str(values["loss"])])
        self._learner.configure(ComputeOptions.of(values))

    def samples(self, _values: Mapping[str, Value]) -> Samples:
        """Return random images with labels from −1 (ignore) to 9 (background)."""
        return RandomLabels(self._scale.image_size, self._seed)

    @staticmethod
    def refusal(values: Mapping[str, Value], _device: torch.device) -> str | None:
        """Return why this loss cannot be recorded as a CUDA graph; None if it need not or can."""
        if not values["cuda_graph"] or values["loss"] not in WAITING:
            return None
        recordable = ", ".join(name for name in LOSSES if name not in WAITING)
        return (
            f"loss={values['loss']}: selecting by a mask reads sizes on the host, which a CUDA "
            f"graph cannot record; valid with cuda_graph=on: {recordable}"
        )

    @staticmethod
    def host_bytes(values: Mapping[str, Value], device: torch.device) -> tuple[int, int]:
        """Return the host bytes of one batch and, on a CPU, of training on it."""
        scale = SCALES[str(values["model_scale"])]
        pixels = int(values["batch_size"]) * scale.image_size**2
        batch = pixels * (3 * 4 + 8)  # float32 channels, int64 label
        if device.type != "cpu":
            return batch, 0
        # every convolution's output, and as much as eight more (measured): gradients,
        # log-probabilities, and copies in the memory order of the CPU's kernels
        activations = pixels * (scale.hidden + 2 + 8) * CHANNELS * 4
        # a mask over the logits becomes indices: four int64 for each of its values
        indices = pixels * NUM_CLASSES * 4 * 8 if values["loss"] in WAITING else 0
        return batch, activations + indices

    def prepare(self, batch: Batch, mark: Mark) -> Prepared:
        """Copy the batch to the device."""
        images, labels = batch  # (B, 3, S, S) float32, (B, S, S) int64
        mark("copy")
        # from pageable memory the host waits here until the driver has staged the copy
        return (
            images.to(self._device, non_blocking=True),
            labels.to(self._device, non_blocking=True),
        )

    def train(self, prepared: Prepared, mark: Mark) -> Tensor:
        """Train the model on images and labels."""
        images, labels = prepared
        return self._learner.train(images, labels, mark)


WORKLOAD = MaskedSegmentation
