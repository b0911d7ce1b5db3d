"""Interpret the names of kernels, copies and operators."""

import re
from typing import Literal, TypeAlias

Direction: TypeAlias = Literal["to device", "to host", "on device", "other"]
MODULE = "nn.Module: "
"""Torch's prefix of a module's name."""
BACKWARD = re.compile(r"autograd::engine::evaluate_function\b.*", re.DOTALL)
"""Matches autograd's event for one operator of the forward pass."""
STEP = re.compile(r"ProfilerStep#(\d{1,15})")
"""Matches torch's annotation of a step."""
_DIRECTIONS: dict[str, Direction] = {"HtoD": "to device", "DtoH": "to host", "DtoD": "on device"}
_PINNED = {"Pinned": True, "Pageable": False}
_COPY = re.compile(r"Memcpy (\w+)(?: \((\w+) -> (\w+)\))?")
_TENSOR_CORES = re.compile(
    r"tensor_?op|tensor\d+x\d+x\d+|tf32f32|warpgroupsize|[ghi]mma|nvjet|(?<![a-z])[hsi](16816|1688|884)"
    r"|flash_(fwd|bwd)|fmha_cutlass[FB]_b?f16|fort_native_sdpa",
    re.IGNORECASE,
)
"""Matches kernels of cuBLAS, cuDNN, CUTLASS and flash attention."""
_PRODUCTS = re.compile(
    r"mm_?($|_)|matmul|conv(\d|olution|_depth|_tbc)|(^|_)linear($|_backward)|attention|attn"
    r"|rnn|lstm|gru|(^|_)(add)?mv_?$|dot$|cdist|einsum|(^|_)(bi|tri)linear$"
)
"""Matches torch operators that multiply matrices, …"""
_WITHOUT = re.compile(r"flatten_weight|reorder|_thnn_")
"""… except these, which move weights or work element by element."""
ALLOCATES = re.compile(r"(cuda|hip)Malloc|cuMemCreate")
"""Matches a call that asks the driver for device memory, …"""
OF_MEMORY = re.compile(
    rf"{ALLOCATES.pattern}|(cuda|hip)Free|cuMem(Release|Map|Unmap|SetAccess|Address(Reserve|Free))"
)
"""… and all that PyTorch's allocator makes to have it and to give it back."""
_NAMESPACE = re.compile(r"(\(anonymous namespace\)|\b\w+)::")
"""Without `\\b` a word that no `::` follows would be read again from each of its letters."""


def uses_tensor_cores(kernel: str) -> bool:
    """Compiler-generated names do not show it."""
    return _TENSOR_CORES.search(kernel) is not None


def has_product(operator: str) -> bool:
    return _PRODUCTS.search(operator) is not None and _WITHOUT.search(operator) is None


def copied(name: str) -> tuple[Direction, bool | None]:
    """None: the name does not say whether the host memory is pinned."""
    found = _COPY.match(name)
    if found is None:
        return "other", None
    how, source, target = found.groups()
    host = {"HtoD": source, "DtoH": target}.get(how)
    return _DIRECTIONS.get(how, "other"), _PINNED.get(host or "")


def short(kernel: str) -> str:
    name = _NAMESPACE.sub("", kernel.removeprefix("void "))
    depth = 0
    for i, character in enumerate(name):
        depth += (character == "<") - (character == ">")
        if character == "(" and depth == 0 and i > 0:
            return name[:i]
    return name
