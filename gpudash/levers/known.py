"""The levers that some script may offer, and all values that one may have there.

This module imports no torch: a command line refuses all others before a script starts. Which of
them this script has it says once it trains.
"""

from collections.abc import Mapping

from ..process_levers import OF_PROCESS, OWN
from ..protocol.training import SWITCH

OF_MODELS: Mapping[str, tuple[str, ...]] = {
    "precision": ("fp32", "cudnn_tf32", "bf16", "fp16", "tf32"),
    "channels_last": SWITCH,
    "compile": SWITCH,
}
"""What may differ between models that train and frozen ones."""
FROZEN = "frozen_"
OF_FROZEN = {FROZEN + name: values for name, values in OF_MODELS.items()}
"""The same of the frozen ones alone: offered where there are any."""
MOST = 256
EACH, LAST = "each", "last"
"""Backward passes that average gradients."""
NEAR = "near"
"""On the cores beside the GPU."""
TOGETHER = {"grad_sync"}
"""Levers that no rank may move alone, not even back."""
KNOWN: Mapping[str, range | tuple[str, ...]] = {
    "num_workers": range(MOST + 1),
    "prefetch_factor": range(1, MOST + 1),
    "pin_memory": SWITCH,
    **OF_MODELS,
    "fused_optimizer": ("fused", "foreach", "single"),
    "grad_sync": (EACH, LAST),
    **OF_FROZEN,
    **{lever.name: lever.values for lever in OF_PROCESS},
    "affinity": (OWN, NEAR),
    "batch_size": (),
}
"""A range is of whole numbers; what has no values cannot be moved."""
