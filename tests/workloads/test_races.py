"""No tensor is read on a stream before the stream that wrote it is waited for.

torch's CUDA sanitizer keeps, for every stream, how far it is ordered behind each other one,
and checks every access against that. It needs no device: here it is told of streams, events
and kernels by a stand-in for `torch.cuda`, so that the schedules' orderings are checked on
any machine. The caching allocator is modelled on top: memory that nobody holds any more may
be written by the very next kernel on the stream that it was allocated on.
"""

import weakref
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.cuda._sanitizer import ArgumentHandler, CUDASanitizerErrors, EventHandler
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from workloads.schedule import DualStream, Serial, side_stream
from workloads.take_home import recipe
from workloads.workload import Batch, Mark, Prepared, unmarked

CUDA = torch.device("cuda", 0)


class FakeCuda(TorchDispatchMode):
    """Streams and events that only the sanitizer knows of; the kernels run on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.handler = EventHandler()
        self.ids = count(1)
        self.default = FakeStream(self, 0)
        self.current = self.default
        self.reusable: dict[FakeStream, set[int]] = defaultdict(set)  # addresses nobody holds
        self.alive: list[Any] = []  # so that no address comes twice

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        accesses = HostArguments()
        accesses.parse_inputs(func._schema, args, kwargs, is_factory=False)
        handed_in = set(accesses.tensor_aliases)
        outputs = func(*args, **kwargs)
        accesses.parse_outputs(func._schema, outputs, is_factory=False)
        reused, self.reusable[self.current] = self.reusable[self.current], set()
        errors = self.handler._handle_kernel_launch(
            self.current.id,
            accesses.dataptrs_read - accesses.dataptrs_written,
            accesses.dataptrs_written | reused,
            accesses.outputs,
            func._schema,
            accesses.tensor_aliases | {address: ["freed"] for address in reused},
        )
        if errors:
            raise CUDASanitizerErrors(errors)
        for made in tree_leaves(outputs):
            if isinstance(made, Tensor) and made.data_ptr() not in handed_in:  # else in place
                self.alive.append(made.untyped_storage())
                weakref.finalize(made, self._free, self.current, made.data_ptr())
        return outputs

    def _free(self, home: "FakeStream", address: int) -> None:
        self.reusable[home].add(address)


class HostArguments(ArgumentHandler):
    """The sanitizer's reading of an operator's arguments, for tensors on the CPU too."""

    def _handle_argument(self, value, is_write, metadata_only, name=None, is_output=False):  # noqa: FBT002  # its signature
        if not isinstance(value, Tensor):
            return
        pointer = value.data_ptr()
        if is_write:
            self.dataptrs_written.add(pointer)
        elif not metadata_only:
            self.dataptrs_read.add(pointer)
        self.tensor_aliases.setdefault(pointer, []).append(name or "")
        if is_output:
            self.outputs.add(pointer)


class FakeStream:
    device = CUDA

    def __init__(self, cuda: FakeCuda, stream_id: int) -> None:
        self.cuda = cuda
        self.id = stream_id
        if stream_id:
            cuda.handler._handle_stream_creation(stream_id)

    def record_event(self, event: int | None = None) -> int:
        if event is None:
            event = next(self.cuda.ids)
            self.cuda.handler._handle_event_creation(event)
        self.cuda.handler._handle_event_record(event, self.id)
        return event

    def __enter__(self) -> None:
        self.before, self.cuda.current = self.cuda.current, self

    def __exit__(self, *_: object) -> None:
        self.cuda.current = self.before

    def wait_event(self, event: int) -> None:
        self.cuda.handler._handle_event_wait(event, self.id)

    def wait_stream(self, other: "FakeStream") -> None:
        self.wait_event(other.record_event())


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    fake = FakeCuda()

    def stream(_device: torch.device = CUDA, priority: int = 0) -> FakeStream:
        return FakeStream(fake, next(fake.ids))

    monkeypatch.setattr(torch.cuda, "Stream", stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    monkeypatch.setattr(torch.cuda, "set_stream", partial(setattr, fake, "current"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device=None: fake.current)
    with fake:
        yield fake


class Halves:
    """The smallest workload: one frozen weight, one trained in place."""

    def __init__(self) -> None:
        self.frozen = torch.ones(4)
        self.trained = torch.ones(4)

    def copy(self, batch: Batch) -> Batch:
        return tuple(tensor.clone() for tensor in batch)

    def encode(self, images: Tensor) -> Tensor:
        return images * self.frozen

    def prepare(self, batch: Batch, mark: Mark) -> Prepared:
        images, labels = self.copy(batch)
        return self.encode(images), labels

    def train(self, prepared: Prepared, mark: Mark) -> Tensor:
        features, labels = prepared
        error = features * self.trained - labels
        self.trained.sub_(error * features)
        return error


HOST_BATCHES: list[Batch] = [(torch.ones(4), torch.ones(4)) for _ in range(4)]


def train_on_two_streams(halves: Halves) -> None:
    schedule = DualStream(halves, side_stream(CUDA))
    for batch in HOST_BATCHES:
        schedule.step(batch, unmarked)
    schedule.drain(unmarked)
    halves.trained.mul_(2)  # what comes after a drain may touch the weights


def test_two_streams_never_race(cuda: FakeCuda) -> None:
    train_on_two_streams(Halves())


def test_going_on_after_a_drain_never_races(cuda: FakeCuda) -> None:
    schedule = DualStream(Halves(), side_stream(CUDA))
    for batch in HOST_BATCHES:
        schedule.step(batch, unmarked)
        schedule.drain(unmarked)
        schedule.drain(unmarked)  # with nothing pending


def test_changing_schedules_back_and_forth_never_races(cuda: FakeCuda) -> None:
    halves = Halves()
    for batch in HOST_BATCHES:
        schedule = DualStream(halves, side_stream(CUDA))
        schedule.step(batch, unmarked)
        schedule.drain(unmarked)
        Serial(halves).step(batch, unmarked)


def source_order(halves: Halves, *, wait_for_copies: bool) -> None:
    """The source's loop: copies on the default stream, one stream each for the halves."""
    encoder_stream, decoder_stream = torch.cuda.Stream(CUDA), torch.cuda.Stream(CUDA)
    features = labels = None
    for batch in HOST_BATCHES:
        images, labels_next = halves.copy(batch)
        if features is not None:
            with decoder_stream:
                decoder_stream.wait_stream(encoder_stream)
                halves.train((features, labels), unmarked)
        if wait_for_copies:
            encoder_stream.wait_stream(torch.cuda.current_stream())
        with encoder_stream:
            features = halves.encode(images)
        labels = labels_next


@pytest.mark.parametrize("wait_for_copies", [False, True])
def test_the_sources_ordering_is_caught(cuda: FakeCuda, *, wait_for_copies: bool) -> None:
    """The encoder reads what is still being copied, or is given the features in training."""
    with pytest.raises(CUDASanitizerErrors) as caught:
        source_order(Halves(), wait_for_copies=wait_for_copies)
    assert "mul" in str(caught.value.errors[0])


def test_the_check_notices_a_schedule_that_does_not_wait(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeStream, "wait_event", lambda *_: None)
    with pytest.raises(CUDASanitizerErrors):
        train_on_two_streams(Halves())


def test_the_check_notices_what_is_let_go_of_while_it_is_trained_on(cuda: FakeCuda) -> None:
    class LetsGo(Halves):
        def prepare(self, batch: Batch, mark: Mark) -> Prepared:
            return list(super().prepare(batch, mark))  # so that the schedule's hold holds nothing

        def train(self, prepared: Prepared, mark: Mark) -> Tensor:
            loss = super().train(prepared, mark)
            prepared.clear()
            return loss

    with pytest.raises(CUDASanitizerErrors):
        train_on_two_streams(LetsGo())


PIPELINED = recipe("pipelined", "on").code


def run_recipe(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the lines that are shown for pipelined=on; a conversion stands for the copy."""
    monkeypatch.setattr(torch.utils.data, "DataLoader", lambda *_, **__: HOST_BATCHES)
    names = {
        "dataset": None,
        "batch_size": 2,
        "device": torch.float64,
        "build_model": lambda: torch.nn.Linear(4, 4),
        "criterion": torch.nn.functional.mse_loss,
    }
    exec(code, names)
    assert len(names["losses"]) == len(HOST_BATCHES)


def test_the_lines_to_take_home_never_race(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    run_recipe(PIPELINED, monkeypatch)


@pytest.mark.parametrize("needed", [x for x in PIPELINED.splitlines() if "wait_stream" in x])
def test_each_wait_in_the_lines_to_take_home_is_needed(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, needed: str
) -> None:
    with pytest.raises(CUDASanitizerErrors):
        run_recipe(PIPELINED.replace(needed, ""), monkeypatch)
