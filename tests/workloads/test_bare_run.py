"""The bare run in this process; its command line is tried in `tests/cli/test_main.py`."""

import sys

import pytest
import torch

from workloads import __main__ as bare
from workloads.training import Training


@pytest.mark.parametrize("when", ["_make_workload", "_build_batches", "step"])
@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 GiB."),
        OSError(12, "Cannot allocate memory"),
        MemoryError(),
    ],
    ids=["device", "fork", "host"],
)
def test_too_little_memory_is_one_line_while_building_as_while_training(
    when: str,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    def fail(_training: Training) -> None:
        raise error

    monkeypatch.setattr(Training, when, fail)
    arguments = ["--device", "cpu", "--set", "num_workers=0", "--set", "batch_size=2"]
    monkeypatch.setattr(sys, "argv", ["python -m workloads", "encdec", *arguments])
    assert bare.main() == 2
    assert capsys.readouterr() == (
        "",
        "python -m workloads: out of memory with num_workers=0, batch_size=2\n",
    )


def test_another_failure_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch):
    def fail(_training: Training) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Training, "_make_workload", fail)
    monkeypatch.setattr(sys, "argv", ["python -m workloads", "encdec", "--device", "cpu"])
    with pytest.raises(RuntimeError, match="a bug"):
        bare.main()
