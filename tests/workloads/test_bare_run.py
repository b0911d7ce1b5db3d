"""The bare run and its command line."""

import json
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from tests.warm import python
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
    monkeypatch.setattr(Training, when, Mock(side_effect=error))
    arguments = ["--device", "cpu", "--set", "num_workers=0", "--set", "batch_size=2"]
    monkeypatch.setattr(sys, "argv", ["python -m workloads", "encdec", *arguments])
    assert bare.main() == 2
    assert capsys.readouterr() == (
        "",
        "python -m workloads: out of memory with num_workers=0, batch_size=2\n",
    )


def test_another_failure_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Training, "_make_workload", Mock(side_effect=RuntimeError("a bug")))
    monkeypatch.setattr(sys, "argv", ["python -m workloads", "encdec", "--device", "cpu"])
    with pytest.raises(RuntimeError, match="a bug"):
        bare.main()


def test_the_bare_loop_prints_one_json_line(
    tmp_path: Path, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(short_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    command = ["-m", "workloads", "encdec", "--steps", "5", "--device", "cpu"]
    levers = "pipelined=on", "batch_size=2", "num_workers=0", "model_scale=small"
    result = json.loads(python(*command, *(f"--set={one}" for one in levers), cwd=tmp_path).stdout)
    assert (result["steps"], result["settings"]["pipelined"]) == (5, "on")
    assert (tmp_path / "gpudash" / "inductor").is_dir()
    assert not list(short_path.iterdir())
    assert result["steps_per_s"] == pytest.approx(5 / result["seconds"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["resnet"],
        ["--set", "batch_size=0"],
        ["--steps", "0"],
        ["--device", "cuda:99"],
        ["--batch-size", "2"],
    ],
)
def test_the_bare_loop_refuses_in_one_line(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["workloads", *arguments])
    monkeypatch.setattr(bare, "keep_compiled_code", lambda: None)  # of this process
    try:
        code: object = bare.main()
    except SystemExit as exit_:
        code = exit_.code
    output, errors = capsys.readouterr()
    assert (code, output) == (2, "")
    assert errors.startswith("python -m workloads: ")
    assert errors.count("\n") == 1
