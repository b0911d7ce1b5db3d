"""What levers change in an optimizer that is not ours."""

from torch import Tensor
from torch.optim import LBFGS, SGD, Optimizer

from workloads.levers import LeverError


def check(optimizer: Optimizer, *, fused: bool, capturable: bool) -> None:
    """Raise LeverError for what the optimizer cannot be."""
    name = type(optimizer).__name__
    if isinstance(optimizer, LBFGS):
        raise LeverError("LBFGS computes the loss several times a step; valid: another optimizer")
    if fused and "fused" not in optimizer.defaults:
        raise LeverError(f"fused_optimizer=on: {name} has no fused form")
    if capturable and "capturable" not in optimizer.defaults and not isinstance(optimizer, SGD):
        raise LeverError(f"cuda_graph=on: {name} cannot be recorded in a CUDA graph")


def arrange(optimizer: Optimizer, *, fused: bool, capturable: bool) -> None:
    """Have it update the weights that way from now on. Raises LeverError."""
    check(optimizer, fused=fused, capturable=capturable)
    for group in optimizer.param_groups:
        if "fused" in group:
            group["fused"] = fused or None  # None: torch chooses, foreach on a GPU
        if "capturable" in group:
            group["capturable"] = capturable
    for weight, state in optimizer.state.items():
        step = state.get("step")
        if isinstance(step, Tensor):  # such kernels count steps where the weights are
            state["step"] = step.to(weight.device if fused or capturable else "cpu")
