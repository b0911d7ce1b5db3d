"""Wherever and however a sample is augmented, the same images are trained on."""

from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torchvision.transforms.v2 import functional as tv

from tests.workloads.trainings import (
    DEVICES,
    Make,
    train,
    weights,
)
from workloads.augment import AugmentedImages, RawImages, build_classifier
from workloads.augmentations import (
    ANGLE,
    KERNEL_SIZE,
    MAX_ANGLE,
    MEAN,
    SIGMAS,
    STD,
    TRANSFORMS,
    BatchAugmentation,
    augment_sample,
    crop_side,
    draw,
    rotate_each,
)
from workloads.encdec import SCALES
from workloads.workload import Batch, unmarked

MAKES = ("augment", {})
pytestmark = pytest.mark.usefixtures("deterministic")

SIZE = SCALES["small"].image_size
VARIANTS = [
    pytest.param({"augment_on": "cpu"}, id="workers"),
    pytest.param({"augment_on": "batched", "rotation": "per_image"}, id="loop"),
    pytest.param({"augment_on": "batched", "rotation": "batched"}, id="batched"),
]
ROUNDING = {"rtol": 0.0, "atol": 2e-6}
"""What another order of the blur's 49 additions leaves in pixels of 0 to 1, …"""
NORMALIZED = {"rtol": 0.0, "atol": 1e-5}
"""… and in the same divided by 0.22."""
TRAINED = {"rtol": 1e-5, "atol": 1e-6}
"""… and in losses and weights after a few steps."""


def batch_of(count: int, size: int = SIZE) -> Batch:
    """Images (B, 3, S, S) uint8, labels (B,), parameters (B, 4)."""
    samples = [RawImages(size, seed=0)[i] for i in range(count)]
    return tuple(torch.stack(tensors) for tensors in zip(*samples, strict=True))


def noise(count: int, size: int = SIZE) -> Tensor:
    """Images (B, 3, S, S) float32, on which any misplaced pixel shows."""
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(1))


def assert_same(ours: list[Tensor], theirs: list[Tensor], **tolerance: float) -> None:
    """Bitwise, unless a tolerance says otherwise."""
    torch.testing.assert_close(ours, theirs, **(tolerance or {"rtol": 0.0, "atol": 0.0}))


# What is random about a sample


def test_a_sample_is_the_same_every_time_and_has_parameters_of_its_own() -> None:
    raw = RawImages(SIZE, seed=0)
    for ours, theirs in zip(raw[3], RawImages(SIZE, seed=0)[3], strict=True):
        assert torch.equal(ours, theirs)
    for one, next_one in pairwise(raw[i][2] for i in range(4)):
        assert (one != next_one).all()
    assert (RawImages(SIZE, seed=1)[3][2] != raw[3][2]).all()


def test_parameters_cover_what_the_transforms_allow() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([draw(SIZE, generator) for _ in range(400)])  # (400, 4)
    top_left, angle, sigma = drawn[:, :2], drawn[:, ANGLE], drawn[:, 3]
    assert top_left.min() == 0
    assert top_left.max() == SIZE - crop_side(SIZE)
    assert torch.equal(top_left, top_left.round())
    assert -MAX_ANGLE <= angle.min() < -0.9 * MAX_ANGLE
    assert 0.9 * MAX_ANGLE < angle.max() <= MAX_ANGLE
    assert SIGMAS[0] <= sigma.min() < 2 * SIGMAS[0]
    assert 0.95 * SIGMAS[1] < sigma.max() <= SIGMAS[1]


def test_augmenting_in_the_workers_takes_nothing_from_the_sample() -> None:
    raw, augmented = RawImages(SIZE, seed=0), AugmentedImages(SIZE, seed=0)
    assert torch.equal(raw[5][1], augmented[5][1])
    assert torch.equal(augmented[5][0], augment_sample(raw[5][0], raw[5][2])[0])
    assert len(raw) == len(augmented) == 1_000_000


# A batch and its images, one by one


@pytest.mark.parametrize("device", DEVICES)
def test_the_crop_of_a_batch_is_exact(device: torch.device) -> None:
    images, _, _ = batch_of(4)
    last = SIZE - crop_side(SIZE)
    corners = [(0, 0), (last, last), (0, last), (7, 3)]
    top, left = torch.tensor(corners, device=device).unbind(dim=1)
    cropped = BatchAugmentation(SIZE, device).crop(images.to(device), top, left)
    side = crop_side(SIZE)
    expected = [i[:, y : y + side, x : x + side] for i, (y, x) in zip(images, corners, strict=True)]
    assert torch.equal(cropped.cpu(), torch.stack(expected))
    assert cropped.is_contiguous()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [1, 9])
@pytest.mark.parametrize("size", [SIZE, 256])
def test_the_rotation_of_a_batch_is_the_loop_to_the_bit(
    device: torch.device, count: int, size: int
) -> None:
    images = noise(count, size).to(device)
    angles = torch.linspace(MAX_ANGLE, -MAX_ANGLE, count, dtype=torch.float64)  # with 0 for 9
    batched = BatchAugmentation(size, device).rotate(images, angles.to(device))
    assert torch.equal(batched, rotate_each(images, angles.tolist()))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [1, 6])
def test_the_blur_of_a_batch_gives_each_image_its_own_sigma(
    device: torch.device, count: int
) -> None:
    images = noise(count).to(device)
    sigmas = torch.linspace(*SIGMAS, count, dtype=torch.float64)
    blurred = BatchAugmentation(SIZE, device).blur(images, sigmas.to(device))
    one_by_one = [
        tv.gaussian_blur(image, [KERNEL_SIZE] * 2, [sigma] * 2)
        for image, sigma in zip(images, sigmas.tolist(), strict=True)
    ]
    torch.testing.assert_close(blurred, torch.stack(one_by_one), **ROUNDING)


@pytest.mark.parametrize("device", DEVICES)
def test_the_normalisation_of_a_batch_is_torchvisions_to_the_bit(device: torch.device) -> None:
    images = noise(2).to(device)
    normalized = BatchAugmentation(SIZE, device).normalize(images)
    assert torch.equal(normalized, tv.normalize(images, list(MEAN), list(STD)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("rotation", ["per_image", "batched"])
def test_a_batch_is_augmented_as_its_samples_are(
    make: Make, device: torch.device, count: int, rotation: str
) -> None:
    workload = make(device, augment_on="batched", rotation=rotation)._workload
    images, labels, parameters = batch_of(count)
    prepared, prepared_labels = workload.prepare((images, labels, parameters), unmarked)
    one_by_one = [
        augment_sample(i.to(device), p)[0] for i, p in zip(images, parameters, strict=True)
    ]
    torch.testing.assert_close(prepared, torch.stack(one_by_one), **NORMALIZED)
    assert prepared.shape == images.shape
    assert torch.equal(prepared_labels.cpu(), labels)


def test_both_rotations_prepare_the_same_bits_and_leave_the_batch_as_it_was(make: Make) -> None:
    """data=resident and data=cached replay it."""
    batch = batch_of(4)
    loop, batched = (
        make(augment_on="batched", rotation=r)._workload.prepare(batch, unmarked)
        for r in ("per_image", "batched")
    )
    assert torch.equal(loop[0], batched[0])
    assert_same(list(batch), list(batch_of(4)))


# Training


@pytest.mark.parametrize("data", ["loader", "cached", "resident"])
def test_every_variant_trains_on_the_same_images(make: Make, data: str) -> None:
    workers, loop, batched = (make(**v.values[0], data=data) for v in VARIANTS)
    losses = train(workers, 3), train(loop, 3), train(batched, 3)
    assert_same(losses[1], losses[2])
    assert_same(weights(loop), weights(batched))
    assert_same(losses[0], losses[2], **TRAINED)
    assert_same(weights(workers), weights(batched), **TRAINED)


def test_moving_the_augmentation_mid_run_changes_no_number(make: Make) -> None:
    stayed, moved = make(), make(pipelined="on")
    losses = []
    for changes in (
        {"augment_on": "batched"},
        {"rotation": "batched"},
        {"batch_size": "3"},
        {"pipelined": "off", "augment_on": "cpu"},
        {"augment_on": "batched", "rotation": "per_image"},
    ):
        losses += train(moved, 1)
        moved.change(changes)
    losses += train(moved, 1)
    expected = train(stayed, 3)
    stayed.change({"batch_size": "3"})
    expected += train(stayed, 3)
    assert_same(losses, expected, **TRAINED)
    assert_same(weights(moved), weights(stayed), **TRAINED)


def test_loader_workers_say_what_each_transform_took(make: Make) -> None:
    training = make(num_workers="1")
    train(training, 2)
    report = training.input_report()
    assert tuple(report.transform_ms) == TRANSFORMS
    assert all(milliseconds > 0 for milliseconds in report.transform_ms.values())
    assert report.skipped == 0
    on_gpu = make(augment_on="batched")
    train(on_gpu, 1)
    assert on_gpu.input_report().transform_ms == {}


def test_the_full_model_is_the_sources() -> None:
    with torch.device("meta"):
        model = build_classifier(SCALES["full"])
        convolutions = [m for m in model.modules() if isinstance(m, torch.nn.Conv2d)]
        assert [m.out_channels for m in convolutions] == [16 << i for i in range(9)]
        assert model(torch.empty(2, 3, 256, 256)).shape == (2, 10)


# What the host does on a GPU, counted without one


@dataclass(frozen=True)
class Operation:
    name: str
    devices: frozenset[str]
    """Of what it reads and what it returns."""
    non_blocking: bool


class Counter(TorchDispatchMode):
    """Notes every operation; a device is asked for nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        results = func(*args, **kwargs)
        if func.namespace == "aten":
            tensors = [t for t in tree_leaves((args, kwargs, results)) if isinstance(t, Tensor)]
            self.operations.append(
                Operation(
                    name=str(func),
                    devices=frozenset(t.device.type for t in tensors),
                    non_blocking=bool(kwargs.get("non_blocking")),
                )
            )
        return results

    @property
    def crossings(self) -> list[Operation]:
        """What goes between host and device: copies, and reading a value off the device."""
        return [
            operation
            for operation in self.operations
            if len(operation.devices) > 1 or "_local_scalar_dense" in operation.name
        ]

    @property
    def waits(self) -> list[Operation]:
        """Those for which the host waits, even from pinned memory."""
        return [operation for operation in self.crossings if not operation.non_blocking]


def preparing(make: Make, count: int, loaded_on: str = "cpu") -> Counter:
    """Count what `prepare` does with a batch on a GPU that is not there."""
    workload = make(augment_on="batched", rotation="batched")._workload
    with FakeTensorMode():
        workload._device = torch.device("cuda")
        workload._augment = BatchAugmentation(SIZE, workload._device)
        images = torch.empty(count, 3, SIZE, SIZE, dtype=torch.uint8, device=loaded_on)
        labels = torch.empty(count, dtype=torch.int64, device=loaded_on)
        parameters = torch.empty(count, 4, dtype=torch.float64, device=loaded_on)
        with Counter() as counter:
            prepared = workload.prepare((images, labels, parameters), unmarked)
        assert {t.device.type for t in prepared} == {"cuda"}
    return counter


def looping(count: int) -> Counter:
    """Count what the rotation of one image after the other does there."""
    with FakeTensorMode():
        images = torch.empty(count, 3, SIZE, SIZE, device="cuda")
        with Counter() as counter:
            rotate_each(images, [30.0] * count)
    return counter


def test_a_batched_augmentation_takes_as_many_operations_whatever_the_batch(make: Make) -> None:
    few, many = preparing(make, 2), preparing(make, 64)
    assert [o.name for o in few.operations] == [o.name for o in many.operations]


def test_a_batched_augmentation_copies_the_batch_and_nothing_else(make: Make) -> None:
    from_host = preparing(make, 8)
    assert len(from_host.crossings) == 3  # images, labels, parameters
    assert from_host.waits == []
    assert preparing(make, 8, loaded_on="cuda").crossings == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="a real GPU's copy passes no dispatch mode")
def test_the_loop_makes_the_host_wait_twice_an_image(make: Make) -> None:
    few, many = looping(2), looping(8)
    assert len(few.waits) == 2 * 2
    assert len(many.waits) == 2 * 8
    assert len(many.operations) > 2 * len(preparing(make, 8).operations)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a real GPU's copy passes no dispatch mode")
def test_the_counter_notices_a_copy_that_blocks_and_a_value_that_is_read() -> None:
    with FakeTensorMode(), Counter() as copied:
        torch.tensor([1.0, 2.0], device="cuda")
    assert len(copied.waits) == 1
    with Counter() as read:
        torch.ones(()).item()
    assert len(read.waits) == 1
