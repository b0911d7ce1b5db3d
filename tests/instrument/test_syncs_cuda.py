"""The sync window on a GPU, with torch's real warnings."""

import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from gpudash.instrument.callsite import TORCH
from gpudash.instrument.syncs import SyncWindow
from gpudash.protocol.inspections import SyncCall
from tests.workloads.trainings import CUDA, Make, making, needs_cuda
from workloads import masked_loss

pytestmark = needs_cuda

PLANTED = {
    "item": lambda t: t.sum().item(),
    "cpu": lambda t: t.cpu(),
    "tolist": lambda t: t.tolist(),
    "nonzero": lambda t: t.nonzero(),
    "unique": lambda t: torch.unique(t),  # noqa: PLW0108  # the line is to be here
    "index": lambda t: t[t > 0],
    "bool": lambda t: 1 if (t > 0).all() else 0,
    "repr": lambda t: repr(t),  # noqa: PLW0108
    "to": lambda t: torch.arange(1000).to(t.device),
    "float": lambda t: float(t[0]),
    "synchronize, the device": lambda t: torch.cuda.synchronize(),
    "synchronize, a stream": lambda t: torch.cuda.current_stream().synchronize(),
    "synchronize, an event": lambda t: torch.cuda.current_stream().record_event().synchronize(),
    "synchronize, an event of any device": lambda t: recorded(t).synchronize(),
    "to, unpinned": lambda t: torch.arange(1000).to(t.device, non_blocking=True),
    "empty_cache": lambda t: torch.cuda.empty_cache(),
    "backward": lambda t: masked_sum(t).backward(),
    "clip_grad_norm_": lambda t: nn.utils.clip_grad_norm_([t], 1.0, error_if_nonfinite=True),
}
"""Lines in which the host waits, by the function called; a comma separates variants."""
SEVERAL = {"repr", "backward"}
"""These wait more than once, in one version of torch or the other."""
ASYNCHRONOUS = {
    "add": lambda t: t + 1,
    "where": lambda t: torch.where(t > 0, t, 0),
    "sum": lambda t: t.sum(),
    "non_blocking": lambda t: t.to("cpu", non_blocking=True),
    "wait_stream": lambda t: torch.cuda.current_stream().wait_stream(torch.cuda.Stream()),
    "query": lambda t: torch.cuda.current_stream().query(),
}


def recorded(t: torch.Tensor) -> torch.Event:
    event = torch.Event(t.device)
    event.record()
    return event


def masked_sum(t: torch.Tensor) -> torch.Tensor:
    """Return a sum by a mask; its backward pass searches the mask's places again."""
    weights = torch.ones_like(t, dtype=torch.float32, requires_grad=True)
    return weights[t.bool()].sum()


@pytest.fixture
def tensor() -> torch.Tensor:
    tensor = torch.arange(-500.0, 500.0, device=CUDA, requires_grad=False)
    tensor.grad = torch.ones_like(tensor)
    return tensor


def seen(run: object, *args: object) -> tuple[SyncCall, ...]:
    torch.cuda.synchronize()
    window = SyncWindow()
    window.start()
    try:
        run(*args)
    finally:
        calls = window.stop()
    return calls


@pytest.mark.parametrize("kind", PLANTED)
def test_a_wait_is_found_with_its_line(kind: str, tensor: torch.Tensor) -> None:
    plant = PLANTED[kind]
    calls = seen(plant, tensor)
    line = plant.__code__.co_firstlineno
    mine = [call for call in calls if call.line == line]
    assert len(mine) == 1 or (mine and kind in SEVERAL)
    assert {call.file for call in calls} == {__file__}
    assert {call.what for call in mine} == {kind.partition(",")[0]}


@pytest.mark.parametrize("kind", ASYNCHRONOUS)
def test_calls_that_do_not_wait_are_not_found(kind: str, tensor: torch.Tensor) -> None:
    assert seen(ASYNCHRONOUS[kind], tensor) == ()


def test_the_script_sees_no_warning_and_no_mode_of_ours(tensor: torch.Tensor) -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        assert len(seen(tensor.tolist)) == 1
    assert shown == []
    assert torch.cuda.get_sync_debug_mode() == 0


def test_an_error_filter_of_the_scripts_raises_nothing(tensor: torch.Tensor) -> None:
    def strict() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tensor.sum().item()

    assert len(seen(strict)) == 1


def test_nothing_is_written_on_the_scripts_stderr() -> None:
    script = (
        "import torch; from gpudash.instrument.syncs import SyncWindow\n"
        "t = torch.ones(8, device='cuda'); window = SyncWindow(); window.start()\n"
        "t.sum().item(); torch.cuda.synchronize()\n"
        "assert len(window.stop()) == 2; t.sum().item()\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")


# ---- the masked losses

FOUND = {
    "nonzero": {"fold_at_indices": 2, "two_in_set": 1, "mean_by_mask": 2},
    "where": {"two_in_set": 1, "mean_by_mask": 2},
    "counted": {"mean_by_mask": 2},
    "ignore_index": {},
    "minmax": {},
}
"""By the loss and its parts: 5, 3, 2, 0 and 0."""


@pytest.fixture
def make() -> Iterator[Make]:
    yield from making("masked_loss", data="resident")


@pytest.mark.parametrize("form", FOUND)
def test_the_masked_losses_wait_where_the_source_says(make: Make, form: str) -> None:
    training = make(CUDA, loss=form)
    for _ in range(3):
        training.step()
    calls = seen(training.step)
    of_loss = [call for call in calls if call.file == masked_loss.__file__]
    assert Counter(call.function for call in of_loss) == FOUND[form]
    others = [call for call in calls if call.file != masked_loss.__file__]
    # backward searches the mask's places again, outside of the loss
    assert {call.what for call in others} == (
        {"backward"} if form in masked_loss.WAITING else set()
    )
    assert not any(call.file.startswith(TORCH) for call in calls)


def test_the_lines_of_the_first_loss_are_those_that_read_sizes(make: Make) -> None:
    training = make(CUDA, loss="nonzero")
    for _ in range(3):
        training.step()
    source = Path(masked_loss.__file__).read_text().splitlines()
    lines = {
        source[call.line - 1].strip().partition("  # ")[0]
        for call in seen(training.step)
        if call.file == masked_loss.__file__
    }
    assert lines == {
        "places = torch.nonzero(labels == BACKGROUND, as_tuple=True)",
        "target[places] = IGNORED",
        "labels = torch.unique(target)",
        "labels = target[mask]",
        "selected = logits.permute(0, 2, 3, 1)[spread]",
    }
