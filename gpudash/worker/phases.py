"""The phases that our workloads mark in a step; `idle`, which they mark besides, is none."""

from gpudash.protocol import Phase

PREPARE = ("copy", "prepare")
TRAIN = ("forward", "backward", "optimizer", "graph")


def phases(prepares: str = "prepare") -> tuple[Phase, ...]:
    """Return them; `prepares` is the workload's word for what it prepares."""
    label = {"prepare": prepares}
    return (
        *(Phase(name=name, label=label.get(name, name), lane="prepare") for name in PREPARE),
        *(Phase(name=name, label=name, lane="train") for name in TRAIN),
    )


PHASES = phases()
