"""Whatever a step computes, and however: two streams compute what one does, and never wait."""

from collections.abc import Iterator

import pytest
import torch

from tests.workloads.trainings import (
    COUNT,
    CUDA,
    DEVICES,
    Make,
    assert_same,
    deterministic_algorithms,
    making,
    needs_cuda,
    never_waiting,
    train,
    weights,
)
from workloads import jpeg_input
from workloads.jpeg_files import JpegFiles
from workloads.masked_loss import LOSSES, WAITING

LOADED = [{"data": "loader"}, {"data": "cached"}, {"data": "resident"}]
ON_GPU = {"augment_on": "batched"}
BATCHED = ON_GPU | {"rotation": "batched"}
INPUTS = [{"input": name} for name in ("baseline", "batched_colour", "on_device", "tensor_decode")]
VARIANTS = {
    "encdec": [
        *LOADED,
        {"channels_last": "on"},
        {"fused_optimizer": "on"},
        {"precision": "bf16"},
    ],
    "augment": [{"augment_on": "cpu"}, ON_GPU | {"rotation": "per_image"}, BATCHED],
    "jpeg_input": INPUTS,
    "masked_loss": [{"loss": form} for form in LOSSES],
}
NEVER_WAITS = {
    "encdec": [{}],
    "augment": [BATCHED | {"pin_memory": "on"} | data for data in (LOADED[0], LOADED[2])],
    "jpeg_input": [INPUTS[0], INPUTS[2]],
    "masked_loss": [{"loss": form} for form in LOSSES if form not in WAITING],
}
# torchvision 0.29 says that torchcodec will take over; 0.26 works without a word
pytestmark = pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")


def each(variants: dict[str, list[dict[str, str]]]) -> pytest.MarkDecorator:
    """Return the mark of a test of each of these variants."""
    found = [(workload, levers) for workload, each in variants.items() for levers in each]
    names = [f"{workload}-{'-'.join(levers.values())}" for workload, levers in found]
    return pytest.mark.parametrize(("workload", "levers"), found, ids=names)


@pytest.fixture
def make(workload: str, monkeypatch: pytest.MonkeyPatch, written: JpegFiles) -> Iterator[Make]:
    monkeypatch.setenv("GPUDASH_DATA", str(written.directory.parent))
    monkeypatch.setattr(jpeg_input, "FILES", COUNT)
    with deterministic_algorithms():
        yield from making(workload)


@each(VARIANTS)
@pytest.mark.parametrize("device", DEVICES)
def test_two_streams_compute_what_one_does(
    make: Make, device: torch.device, levers: dict[str, str]
) -> None:
    for data in LOADED if device == CUDA else [{}]:
        serial, streams = (make(device, **data | levers, pipelined=on) for on in ("off", "on"))
        assert_same(device, train(streams, 5), train(serial, 5))
        assert_same(device, weights(streams), weights(serial))


@each(VARIANTS)
def test_a_batch_of_one_trains(make: Make, levers: dict[str, str]) -> None:
    assert train(make(**levers, batch_size="1", pipelined="on"), 1)[0].isfinite()


@needs_cuda
@each(NEVER_WAITS)
@pytest.mark.parametrize("pipelined", ["off", "on"])
def test_no_step_makes_the_host_wait(make: Make, levers: dict[str, str], pipelined: str) -> None:
    training = make(CUDA, **{"data": "resident"} | levers, pipelined=pipelined)
    train(training, 3)
    with never_waiting():
        for _ in range(3):
            training.step()
    train(training, 1)
