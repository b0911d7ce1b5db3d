"""The phases that gpudash's workloads mark in a step. They also mark `idle`, which is no phase."""

from gpudash.protocol.training import Phase

PREPARE = ("copy", "prepare")
TRAIN = ("forward", "backward", "optimizer", "graph")


COMMUNICATION = "communication"
"""Of several ranks: from the last gradient to the end of the backward pass."""


def phases(prepares: str = "prepare", train: tuple[str, ...] = TRAIN) -> tuple[Phase, ...]:
    """Label `prepare` with the workload's own word."""
    label = {"prepare": prepares}
    return (
        *(Phase(name=name, label=label.get(name, name), lane="prepare") for name in PREPARE),
        *(Phase(name=name, label=name, lane="train") for name in train),
    )


def phases_of_ranks(prepares: str = "prepare") -> tuple[Phase, ...]:
    after_backward = TRAIN.index("backward") + 1
    train = (*TRAIN[:after_backward], COMMUNICATION, *TRAIN[after_backward:])
    return phases(prepares, train)


PHASES = phases()
