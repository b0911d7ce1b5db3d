"""Classification of crops from JPEG files, bound by the pipeline that makes its samples.

The source's experiment (C. Rand, Solving Bottlenecks on the Data Input Pipeline with PyTorch
Profiler and TensorBoard, 2023): read a photograph of 533×800, crop it at random, mask random
pixels, convert to YUV, scale. The lever `input` has its stages and further ones
(`jpeg_stages.py`). The samples are the same in all of them.

Shapes: B batch, S crop side (256), T transforms timed.
"""

import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2
from pathlib import Path

import torch
from torch import Tensor, nn

from workloads.compute_options import ComputeOptions, Learner
from workloads.jpeg_files import FILES, JpegFiles
from workloads.jpeg_stages import KEY_BITS, SIDE, STAGES, UNREADABLE, Stage, nvimgcodec, run, yuv
from workloads.levers import Value
from workloads.workload import Batch, Mark, Prepared, Samples

NUM_CLASSES = 10
DATASET_SIZE = 1_000_000
"""Number of samples. Each pass over the files has other crops and masks."""
PATIENCE = 16
"""Most unreadable files in a row that are skipped; more mean that something else is wrong."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Size of the model. The samples do not depend on it, as they are the subject."""

    channels: int
    stride: int
    """Stride of the first convolution, by which the rest of the model sees a smaller crop."""


SCALES = {
    "full": Scale(channels=30, stride=1),  # the source's
    "small": Scale(channels=4, stride=8),  # cheap compared with the input, even on a CPU
}


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
        """Return the samples of a batch; the loader calls this with all indices of a batch."""
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
    """The workload: `prepare` copies, and makes what the workers left; `train` trains."""

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
        yuv(device)  # sync: made here, so that no step waits for it

    def configure(self, values: Mapping[str, Value]) -> None:
        """Configure the model's optimizations, and the stage of the input pipeline."""
        self._classifier.configure(ComputeOptions.of(values))
        self._stage = STAGES[str(values["input"])]

    def samples(self, values: Mapping[str, Value]) -> Samples:
        """Return the crops, as far as the stage makes them in the loader workers."""
        return JpegCrops(self._files.paths, STAGES[str(values["input"])], self._seed)

    @staticmethod
    def refusal(values: Mapping[str, Value], _device: torch.device) -> str | None:
        """Return why the stage's decoder is missing here; None if it is not."""
        if values["input"] != "region_decode":
            return None
        try:
            nvimgcodec()  # loaded once, before loader workers are forked
        except ImportError as error:
            others = ", ".join(name for name in STAGES if name != "region_decode")
            return (
                f"input=region_decode: needs nvidia-nvimgcodec-cu13 (or -cu12), which does not "
                f"load here ({error}); valid here: {others}"
            )
        return None

    @staticmethod
    def host_bytes(values: Mapping[str, Value], device: torch.device) -> tuple[int, int]:
        """Return the host bytes of one batch and, on a CPU, of training on it."""
        stage, scale = STAGES[str(values["input"])], SCALES[str(values["model_scale"])]
        batch_size = int(values["batch_size"])
        crops = batch_size * SIDE**2  # pixels
        batch = crops * 3 * (1 if stage.device else 4)
        if device.type != "cpu":
            return batch, 0
        # first: hashes (int64) twice, YUV (float32) twice. second: the outer layers' maps, and 1.5
        # for each block, which has a quarter of the size, with gradients: 7 × the widest
        first = crops * (2 * 8 + 2 * 3 * 4) if stage.device else 0
        second = crops // scale.stride**2 * 7 * scale.channels * 4
        return batch, first + second

    def prepare(self, batch: Batch, mark: Mark) -> Prepared:
        """Copy the batch to the device; mask and convert it there, if the stage does so."""
        pixels, labels, keys = batch  # (B, 3, S, S) float32 or uint8, (B,) int64, (B,) int64
        mark("copy")
        # from pageable memory the host waits here until the driver has staged the copy
        pixels = pixels.to(self._device, non_blocking=True)
        labels = labels.to(self._device, non_blocking=True)
        keys = keys.to(self._device, non_blocking=True)
        mark("prepare")
        for step in self._stage.device:
            pixels = step.apply(pixels, keys)
        return pixels, labels  # (B, 3, S, S) float32, (B,) int64

    def train(self, prepared: Prepared, mark: Mark) -> Tensor:
        """Train on crops and classes."""
        pixels, labels = prepared
        return self._classifier.train(pixels, labels, mark)


WORKLOAD = JpegInput
