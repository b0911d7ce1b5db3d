"""Keeps images and weights in NHWC order.

Weights, gradients and the optimizer's state change order together, as fused updates need one order.
The model's outputs get their own order back, so that the script's `view` works on them. Meanwhile a
`state_dict` of the model has weights in NHWC order, and an optimizer's has the script's order.
Limit: `weight.view(-1)` outside of the model fails meanwhile.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakTensorKeyDictionary

from ..protocol.records import Settings
from ..protocol.training import Lever
from .offers import absent, on_off
from .training_objects import Call, TrainingObjects, alive, each_tensor, modules_of

SUMMARY = (
    "Keep images and weights in NHWC order, which cuDNN's tensor-core kernels want; "
    "saves their transposes."
)
SOURCE = "PyTorch, Channels Last Memory Format tutorial"
FLATTENING = {"LBFGS", "Muon"}
"""Optimizers of PyTorch that flatten gradients with `view`."""


class ChannelsLast:
    """The lever `channels_last`."""

    def __init__(self) -> None:
        self._on = self._default = False
        self._strides = WeakTensorKeyDictionary()  # the script's strides, while changed
        self._hooks: list[RemovableHandle] = []

    def update(self, found: TrainingObjects) -> None:
        self._roots = found.roots
        self._is_shared = found.world_size > 1
        self._optimizers = found.optimizer_refs
        if self._on == self._default:  # else the order is the lever's
            self._on = self._default = any(map(_is_channels_last, self._weights()))

    @property
    def offers(self) -> tuple[Lever, ...]:
        why = self._refusal()
        if why:
            default = on_off(self._default)
            return (absent("channels_last", why, summary=SUMMARY, source=SOURCE, value=default),)
        offer = Lever(
            name="channels_last",
            kind="switch",
            default=on_off(self._default),
            summary=SUMMARY,
            source=SOURCE,
            helps=(("on", "image order"),),
            numerics=True,
        )
        return (offer,)

    @property
    def settings(self) -> Settings:
        return {"channels_last": on_off(self._on)}

    def apply(self, wanted: Settings) -> None:
        on = wanted["channels_last"] == "on"
        if on == self._on:
            return
        self._on = on
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if on == self._default:
            for tensor in self._all_tensors():
                strides = self._strides.get(tensor)  # type: ignore[no-untyped-call]  # in torch
                tensor.data = _ordered(tensor.data, strides) if strides else self._own(tensor.data)
            self._strides = WeakTensorKeyDictionary()
            return
        for tensor in self._all_tensors():
            self._strides[tensor] = tensor.stride()
            tensor.data = tensor.data.contiguous(memory_format=_format(on))
        self._hooks = [
            optimizer.register_state_dict_post_hook(self._in_script_order)
            for optimizer in alive(self._optimizers)
        ]

    def around(self) -> Callable[[Call], Call] | None:
        return None if self._on == self._default else _rearranged if self._on else _contiguous

    def _refusal(self) -> str | None:
        weights = list(self._weights())
        if not weights:
            return "the model has no 4-D weights"
        if self._is_shared:
            return "the ranks exchange gradients in the order that the weights had at first"
        if any(weight.untyped_storage().nbytes() != weight.nbytes for weight in weights):
            return "the weights are views of one storage"
        if any(weight.device.type == "cpu" and weight.is_shared() for weight in weights):  # type: ignore[no-untyped-call]  # in torch
            return "other processes share the weights' memory"
        for optimizer in alive(self._optimizers):
            name = type(optimizer).__name__
            if not type(optimizer).__module__.startswith("torch.optim") or name in FLATTENING:
                return f"{name} may need weights in their own order"
        return None

    def _weights(self) -> Iterator[Tensor]:
        modules = modules_of(self._roots)
        return (
            weight
            for module in modules
            for weight in nn.Module.parameters(module)
            if _is_4d(weight)
        )

    def _all_tensors(self) -> Iterator[Tensor]:
        for weight in self._weights():
            yield weight
            if weight.grad is not None and not weight.grad.is_sparse:
                yield weight.grad
            for optimizer in alive(self._optimizers):
                state = optimizer.state.get(weight, {})
                yield from (kept for kept in state.values() if _alike(kept, weight))

    def _in_script_order(self, _: Optimizer, saved: dict[str, Any]) -> dict[str, Any]:
        state = {
            index: {
                name: self._own(kept) if _is_4d(kept) else kept for name, kept in states.items()
            }
            for index, states in saved["state"].items()
        }
        return {**saved, "state": state}

    def _own(self, tensor: Tensor) -> Tensor:
        return tensor.contiguous(memory_format=_format(self._default))


def _rearranged(call: Call) -> Call:
    def channels_last_call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = each_tensor(_channels_last, args), each_tensor(_channels_last, kwargs)
        return each_tensor(_plain, call(*args, **kwargs))

    return channels_last_call


def _contiguous(call: Call) -> Call:
    def contiguous_call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = each_tensor(_plain, args), each_tensor(_plain, kwargs)
        return call(*args, **kwargs)

    return contiguous_call


def _channels_last(tensor: Tensor) -> Tensor:
    if _is_4d(tensor) and tensor.is_floating_point():
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor


def _plain(tensor: Tensor) -> Tensor:
    return tensor.contiguous() if _is_channels_last(tensor) else tensor


def _format(channels_last: bool) -> torch.memory_format:  # noqa: FBT001  # it is the value
    return torch.channels_last if channels_last else torch.contiguous_format


def _is_4d(tensor: Any) -> bool:
    return isinstance(tensor, Tensor) and tensor.dim() == 4 and tensor.layout == torch.strided


def _alike(kept: Any, weight: Tensor) -> bool:
    return _is_4d(kept) and kept.shape == weight.shape


def _is_channels_last(tensor: Tensor) -> bool:
    return (
        _is_4d(tensor)
        and tensor.is_contiguous(memory_format=torch.channels_last)
        and not tensor.is_contiguous()
    )


def _ordered(tensor: Tensor, strides: tuple[int, ...]) -> Tensor:
    if tensor.stride() == strides:
        return tensor
    return torch.empty_strided(
        tensor.shape, strides, dtype=tensor.dtype, device=tensor.device
    ).copy_(tensor)
