"""Moves the precision of the layers: the script's own, TF32, or bf16 by autocast.

An autocast of the script's is known if the model is called inside one, or if its `forward` is
decorated with one. One in a submodule is found only by a move to bf16, which is then refused.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.overrides import TorchFunctionMode

from ..instrument.private_torch import has_newer_precision
from ..protocol.records import Settings
from ..protocol.training import SCRIPT, Lever
from ..training.commanded import Refusal
from .compile import FSDP, WRAPPED
from .offers import choice
from .training_objects import Call, Root, TrainingObjects, each_tensor, modules_of, shards_of

ACTIVE = "an autocast is active already"
HALF = {torch.bfloat16: "bf16", torch.float16: "fp16"}
MOVES = ("tf32", "bf16")
CUDNN_TF32 = "cudnn_tf32"
"""PyTorch's default: TF32 in cuDNN's convolutions and recurrent layers, fp32 in other products."""
EXACT = ("none", "ieee")
"""Words of torch's interface for fp32."""
DECORATORS = 8
"""Around a `forward`, at most."""


class Precision:
    """The lever `precision`."""

    def __init__(self) -> None:
        self._moved_to: str | None = None
        self._script_tf32: _Tf32 | None = None  # while TF32 is the lever's

    def update(self, found: TrainingObjects) -> None:
        self._device = found.device
        self._roots = found.roots
        self._scaler = found.scaler
        self._is_shared = found.world_size > 1
        self._own = _own_precision(found, self._script_tf32 or _Tf32.now())

    @property
    def offers(self) -> tuple[Lever, ...]:
        return (
            choice(
                "precision",
                self._own,
                {"tf32": self._no_tf32(), "bf16": self._no_bf16()},
                summary="What the layers compute in: tf32 in matrix products and convolutions, or "
                "bf16 by autocast around the model, with its outputs cast back. Fewer bits go "
                "through the tensor cores faster; bf16 also halves the memory traffic.",
                source="torch.backends, torch.autocast",
                helps=(("tf32", "tf32"), ("bf16", "bf16")),
            ),
        )

    @property
    def settings(self) -> Settings:
        return {"precision": self._moved_to or self._own}

    def apply(self, wanted: Settings) -> None:
        wants = wanted["precision"]
        value = wants if wants in MOVES and wants != self._own else None
        if value == "tf32" and self._script_tf32 is None:
            self._script_tf32 = _Tf32.now()
            self._script_tf32.switch_on()
        elif value != "tf32" and self._script_tf32 is not None:
            self._script_tf32.put_back()
            self._script_tf32 = None
        self._moved_to = value

    def around(self) -> Callable[[Call], Call] | None:
        if self._moved_to != "bf16":
            return None
        return functools.partial(_autocast, self._device.type)

    @property
    def is_for_all(self) -> bool:
        return self._script_tf32 is not None

    @property
    def probe(self) -> Callable[[Call], Call] | None:
        """What a rehearsal first puts around a call, to detect an autocast inside."""
        modules = [module for root in modules_of(self._roots) for module in root.modules()]
        if self._moved_to != "bf16" or any(hasattr(module, "_orig_mod") for module in modules):
            return None  # compiled code is not intercepted
        return functools.partial(_watched, self._device.type)

    def _no_tf32(self) -> str | None:
        if self._own in HALF.values():
            return f"the script computes in {self._own}"
        if self._device.type != "cuda":
            return "TF32 needs a GPU"
        return None if _has_tf32(self._device) else "this GPU has no TF32"

    def _no_bf16(self) -> str | None:
        if self._scaler or any(root.autocast is not None for root in self._roots):
            return ACTIVE
        modules = modules_of(self._roots)
        weights = [weight for module in modules for weight in nn.Module.parameters(module)]
        if not weights:
            return "no model was found"
        if self.sharded:
            return self.sharded
        if any(weight.is_floating_point() and weight.dtype != torch.float32 for weight in weights):
            return "the model's weights are not all float32"
        if self._device.type == "cuda" and not torch.cuda.is_bf16_supported(False):
            return "this GPU does not compute in bf16"
        return None

    @property
    def sharded(self) -> str | None:
        """Why its calls need the other ranks: what changes them is refused, not rehearsed."""
        if not self._is_shared:
            return None
        modules = [one for root in modules_of(self._roots) for one in root.modules()]
        kinds = {kind.__name__ for module in modules for kind in type(module).__mro__}
        weights = (
            type(one).__name__ for module in modules for one in nn.Module.parameters(module, False)
        )
        if not kinds.isdisjoint(FSDP):
            return "FSDP sets its precision once, when it shards the model"
        if "DTensor" in weights:
            return "the weights are spread over the ranks"
        return next((why for name, why in WRAPPED.items() if name in kinds), None)


def _own_precision(found: TrainingObjects, tf32: "_Tf32") -> str:
    """Return a value of the lever, or `SCRIPT`."""
    alive = [root for root in found.roots if root.module is not None]
    ways = {_half_of(root, scaler=found.scaler) for root in alive} or {None}
    if len(ways) > 1:
        return SCRIPT
    way = ways.pop()
    if way is not None:
        return way
    if found.device.type == "cpu":
        return "fp32" if tf32.newer[3] in EXACT else SCRIPT
    return of_layers(modules_of(alive), tf32.newer) if _has_tf32(found.device) else "fp32"


def _half_of(root: Root, *, scaler: bool) -> str | None:
    """Return the half precision of a root, `SCRIPT` if it cannot be known; None: it is float32."""
    if root.autocast is not None:
        return HALF.get(root.autocast)
    [module] = modules_of([root])
    decorated = _decorated(module) or _decorated(getattr(module, "module", None))  # inside of DDP
    if decorated:
        return decorated
    modules = list(module.modules())
    kinds = {kind.__name__ for one in modules for kind in type(one).__mro__}
    if scaler or not kinds.isdisjoint(WRAPPED.keys() - {"DataParallel", "FSDPModule"}):
        return SCRIPT  # an autocast that was not seen, or a wrapper that computes in another dtype
    policies = (getattr(shard, "mp_policy", SCRIPT) for one in modules for shard in shards_of(one))
    shards: set[Any] = {getattr(policy, "param_dtype", SCRIPT) for policy in policies}
    if shards - {None, torch.float32}:
        return HALF.get(shards.pop(), SCRIPT) if len(shards) == 1 else SCRIPT
    # biases and norms are often kept in float32; products are of matrices
    weights = (weight for weight in nn.Module.parameters(module) if weight.dim() > 1)
    dtypes = {weight.dtype for weight in weights} or {torch.float32}
    dtype = dtypes.pop()
    if dtypes:
        return SCRIPT
    return None if dtype == torch.float32 else HALF.get(dtype, SCRIPT)


def _decorated(module: Any) -> str | None:
    """Look for an autocast around the module's own `forward`, as accelerate has one."""
    forward = getattr(module, "forward", None)
    for _ in range(DECORATORS):
        function = getattr(forward, "__func__", forward)
        for cell in getattr(function, "__closure__", None) or ():
            with contextlib.suppress(ValueError):  # an empty cell
                held = cell.cell_contents
                if issubclass(type(held), torch.autocast) and held._enabled:  # noqa: SLF001  # no public name
                    return HALF.get(held.fast_dtype, SCRIPT)
        if "autocast" in getattr(getattr(function, "__code__", None), "co_names", ()):
            return SCRIPT
        forward = getattr(function, "__wrapped__", None)
    return None


def of_layers(roots: Iterable[nn.Module], switches: Sequence[str]) -> str:
    """Return what float32 weights compute in on a GPU with TF32, by `_Tf32.newer`'s switches."""
    matmul, conv, recurrent = (one == "tf32" for one in switches[:3])
    layers = (
        module
        for root in roots
        for module in root.modules()
        if any(weight.dim() > 1 for weight in nn.Module.parameters(module, recurse=False))
    )
    by_kind = ((_ConvNd, conv), (nn.RNNBase, recurrent), (nn.Module, matmul))
    seen = {next(on for kind, on in by_kind if isinstance(one, kind)) for one in layers} or {matmul}
    if len(seen) > 1:
        return SCRIPT if matmul else CUDNN_TF32
    return "tf32" if seen.pop() else "fp32"


def _has_tf32(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def _autocast(device_type: str, call: Call) -> Call:
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
    """The script's TF32 settings, in both interfaces of PyTorch.

    After a write through the newer one, reads through the older one raise, such as inductor's.
    """

    older: tuple[str, bool] | None
    """Of matrix products and of cuDNN; None: the script has used the newer interface."""
    newer: tuple[str, ...]
    """Of matrix products, convolutions and recurrent layers, then of matrix products on a CPU.
    Before torch 2.9, which has the older interface alone, they are what that says."""

    @classmethod
    def now(cls) -> "_Tf32":
        try:
            older = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        except RuntimeError:
            older = None
        if older is not None and not has_newer_precision():
            product = "none" if older[0] == "highest" else "tf32"
            layer = "tf32" if older[1] else "none"
            return cls(older, (product, layer, layer, product))
        return cls(older, tuple(place.fp32_precision for place in _places()))

    def switch_on(self) -> None:
        """Go through the interface that the script uses."""
        if self.older:
            torch.set_float32_matmul_precision("high")
            torch.backends.cudnn.allow_tf32 = True
        else:
            for place in _places()[:3]:
                place.fp32_precision = "tf32"

    def put_back(self) -> None:
        if self.older:
            torch.set_float32_matmul_precision(self.older[0])
            torch.backends.cudnn.allow_tf32 = self.older[1]
        for place, precision in zip(_places(), self.newer, strict=has_newer_precision()):
            if place.fp32_precision != precision:  # the older interface writes here too
                place.fp32_precision = precision


def _places() -> tuple[Any, ...]:
    if not has_newer_precision():
        return ()
    cuda: Any = torch.backends.cuda
    cudnn: Any = torch.backends.cudnn
    mkldnn: Any = torch.backends.mkldnn
    return cuda.matmul, cudnn.conv, cudnn.rnn, mkldnn.matmul
