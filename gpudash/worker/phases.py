"""The phases that our workloads mark in a step; `idle`, which they mark besides, is none."""

from gpudash.protocol import Phase

PREPARE = ("copy", "prepare")
TRAIN = ("forward", "backward", "optimizer", "graph")


COMMUNICATION = "communication"
"""With several ranks: from the gradient computed last to the end of the backward pass."""


def phases(prepares: str = "prepare", train: tuple[str, ...] = TRAIN) -> tuple[Phase, ...]:
    """Return them; `prepares` is the workload's word for what it prepares."""
    label = {"prepare": prepares}
    return (
        *(Phase(name=name, label=label.get(name, name), lane="prepare") for name in PREPARE),
        *(Phase(name=name, label=name, lane="train") for name in train),
    )


def phases_of_ranks(prepares: str = "prepare") -> tuple[Phase, ...]:
    """Return those of one of several ranks."""
    after_backward = TRAIN.index("backward") + 1
    train = (*TRAIN[:after_backward], COMMUNICATION, *TRAIN[after_backward:])
    return phases(prepares, train)


PHASES = phases()
