"""A user's own workload: declared by a decorator, found by its name, trained like the others.

This module does not import torch.
"""

from workloads.own.declaration import workload

__all__ = ["workload"]
