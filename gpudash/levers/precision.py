"""Moves the precision of the layers: the script's own, TF32, or bf16 by autocast."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gpudash.levers.compile import WRAPPED
from gpudash.levers.offers import choice
from gpudash.levers.tensors import each_tensor
from gpudash.levers.training_objects import Call, TrainingObjects, modules_of
from gpudash.protocol.records import Settings
from gpudash.protocol.training import LeverOffer
from gpudash.training.levers import Refusal

ACTIVE = "an autocast is active already"


class Precision:
    """The lever `precision`."""

    def __init__(self) -> None:
        self._value = "script"
        self._script_tf32: _Tf32 | None = None  # while TF32 is the lever's

    def update(self, found: TrainingObjects) -> None:
        """See Family."""
        self._device = found.device
        self._roots = found.roots
        self._scaler = found.scaler
        self._is_shared = found.world_size > 1

    @property
    def offers(self) -> tuple[LeverOffer, ...]:
        """See Family."""
        impossible = {"tf32": self._no_tf32(), "bf16": self._no_bf16()}
        return (
            choice(
                "precision",
                {value: why for value, why in impossible.items() if why},
                ("script", "tf32", "bf16"),
                summary="What the layers compute in: what the script says; tf32 in matrix products "
                "and convolutions; or bf16 by autocast around the model, with its outputs cast "
                "back. Fewer bits go through the tensor cores faster; bf16 also halves the memory "
                "traffic.",
                source="torch.backends, torch.autocast",
            ),
        )

    @property
    def settings(self) -> Settings:
        """See Family."""
        return {"precision": self._value}

    def apply(self, wanted: Settings) -> None:
        """See Family."""
        value = wanted["precision"]
        if value == "tf32" and self._script_tf32 is None:
            self._script_tf32 = _Tf32.now()
            self._script_tf32.switch_on()
        elif value != "tf32" and self._script_tf32 is not None:
            self._script_tf32.put_back()
            self._script_tf32 = None
        self._value = value

    def around(self) -> Callable[[Call], Call] | None:
        """See Computing."""
        if self._value != "bf16":
            return None
        return functools.partial(_autocast, self._device.type)

    @property
    def probe(self) -> Callable[[Call], Call] | None:
        """What a rehearsal first puts around a call, to detect an autocast inside."""
        modules = [module for root in modules_of(self._roots) for module in root.modules()]
        if self._value != "bf16" or any(hasattr(module, "_orig_mod") for module in modules):
            return None  # compiled code is not intercepted
        return functools.partial(_watched, self._device.type)

    def _no_tf32(self) -> str | None:
        if self._device.type != "cuda":
            return "TF32 needs a GPU"
        if sharded := self._sharded():
            return sharded
        if torch.cuda.get_device_capability(self._device) < (8, 0):
            return "this GPU has no TF32"
        return None

    def _no_bf16(self) -> str | None:
        if self._scaler or any(root.autocast for root in self._roots):
            return ACTIVE
        modules = modules_of(self._roots)
        weights = [weight for module in modules for weight in nn.Module.parameters(module)]
        if not weights:
            return "no model was found"
        if sharded := self._sharded():
            return sharded
        if any(weight.is_floating_point() and weight.dtype != torch.float32 for weight in weights):
            return "the model's weights are not all float32"
        if self._device.type == "cuda" and not torch.cuda.is_bf16_supported(False):
            return "this GPU does not compute in bf16"
        return None

    def _sharded(self) -> str | None:
        """Return why one rank alone cannot rehearse the model; None: it can."""
        if not self._is_shared:
            return None
        modules = [one for root in modules_of(self._roots) for one in root.modules()]
        kinds = {kind.__name__ for module in modules for kind in type(module).__mro__}
        weights = (
            type(one).__name__ for module in modules for one in nn.Module.parameters(module, False)
        )
        if "DTensor" in weights:
            return "the weights are spread over the ranks"
        return next((why for name, why in WRAPPED.items() if name in kinds), None)


def _autocast(device_type: str, call: Call) -> Call:
    """Return the call inside an autocast, with outputs cast back to float32."""

    def autocast_call(*args: Any, **kwargs: Any) -> Any:
        if torch.is_autocast_enabled(device_type):  # the script's own
            return call(*args, **kwargs)
        with torch.autocast(device_type, dtype=torch.bfloat16):
            outputs = call(*args, **kwargs)
        return each_tensor(_as_float32, outputs)

    return autocast_call


def _as_float32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


def _watched(device_type: str, call: Call) -> Call:
    """Return the call; it raises Refusal if there is an autocast inside."""

    def watched_call(*args: Any, **kwargs: Any) -> Any:
        with _Autocasts(device_type) as autocasts:
            outputs = call(*args, **kwargs)
        if autocasts.seen:
            raise Refusal(ACTIVE)
        return outputs

    return watched_call


class _Autocasts(TorchFunctionMode):
    """Detects an active autocast at any function of torch."""

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self._device_type = device_type
        self.seen = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,  # torch's signature
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        self.seen = self.seen or torch.is_autocast_enabled(self._device_type)
        return func(*args, **(kwargs or {}))


class _Tf32(NamedTuple):
    """The script's TF32 settings.

    PyTorch has two interfaces. After a write through the newer one, reads through the older one
    raise, and inductor reads through the older one.
    """

    older: tuple[str, bool] | None
    """Of matrix products and of cuDNN; None: the script has used the newer interface."""
    newer: tuple[str, ...]
    """Of matrix products, convolutions and recurrent layers, then of matrix products on a CPU."""

    @classmethod
    def now(cls) -> "_Tf32":
        """Return the current settings."""
        try:
            older = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        except RuntimeError:
            older = None
        return cls(older, tuple(place.fp32_precision for place in _places()))

    def switch_on(self) -> None:
        """Turn TF32 on everywhere, through the interface that the script uses."""
        if self.older:
            torch.set_float32_matmul_precision("high")
            torch.backends.cudnn.allow_tf32 = True
        else:
            for place in _places()[:3]:
                place.fp32_precision = "tf32"

    def put_back(self) -> None:
        """Restore the settings of both interfaces."""
        if self.older:
            torch.set_float32_matmul_precision(self.older[0])
            torch.backends.cudnn.allow_tf32 = self.older[1]
        for place, precision in zip(_places(), self.newer, strict=True):
            if place.fp32_precision != precision:  # the older interface writes here too
                place.fp32_precision = precision


def _places() -> tuple[Any, ...]:
    cuda: Any = torch.backends.cuda
    cudnn: Any = torch.backends.cudnn
    mkldnn: Any = torch.backends.mkldnn
    return cuda.matmul, cudnn.conv, cudnn.rnn, mkldnn.matmul
