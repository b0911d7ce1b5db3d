"""Where a GPU's loss is copied to, tested without a GPU."""

from typing import Any

import pytest
import torch

from gpudash.instrument.loss import DeviceLoss


@pytest.fixture
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace streams by ones that do nothing, and do not pin memory."""
    empty = torch.empty

    def unpinned(*args: Any, pin_memory: bool, **kwargs: Any) -> torch.Tensor:
        assert pin_memory
        return empty(*args, **kwargs)

    monkeypatch.setattr(torch, "empty", unpinned)
    monkeypatch.setattr(torch.cuda, "Stream", lambda _device: None)


@pytest.mark.usefixtures("_no_gpu")
def test_a_loss_is_read_to_the_host_whatever_the_scripts_default_tensors_are() -> None:
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16)
    try:
        with torch.device("meta"):
            host = DeviceLoss(torch.device("cuda", 0))._host
    finally:
        torch.set_default_dtype(dtype)
    assert (host.device.type, host.dtype) == ("cpu", torch.float32)
