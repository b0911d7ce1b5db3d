"""The levers that act on a user's optimizer."""

from torch import Tensor
from torch.optim import LBFGS, SGD, Optimizer

from workloads.levers import LeverError


def check(optimizer: Optimizer, *, fused: bool, capturable: bool) -> None:
    """Raise LeverError if the optimizer does not support these options."""
    name = type(optimizer).__name__
    if isinstance(optimizer, LBFGS):
        raise LeverError("LBFGS computes the loss several times a step; valid: another optimizer")
    if fused and "fused" not in optimizer.defaults:
        raise LeverError(f"fused_optimizer=on: {name} has no fused form")
    if capturable and "capturable" not in optimizer.defaults and not isinstance(optimizer, SGD):
        raise LeverError(f"cuda_graph=on: {name} cannot be recorded in a CUDA graph")


def arrange(optimizer: Optimizer, *, fused: bool, capturable: bool) -> None:
    """Set the optimizer's options. Raises LeverError if it does not support them."""
    check(optimizer, fused=fused, capturable=capturable)
    for group in optimizer.param_groups:
        if "fused" in group:
            group["fused"] = fused or None  # None: torch chooses, foreach on a GPU
        if "capturable" in group:
            group["capturable"] = capturable
    for weight, state in optimizer.state.items():
        step = state.get("step")
        if isinstance(step, Tensor):  # these kernels count steps on the weights' device
            state["step"] = step.to(weight.device if fused or capturable else "cpu")
