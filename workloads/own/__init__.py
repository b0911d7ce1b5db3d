"""A workload of a user's own: declared by a decorator, found by a name, trained as ours are.

Importing it costs no torch.
"""

from workloads.own.declaration import workload

__all__ = ["workload"]
