"""The phases that our workloads mark in a step; `idle`, which they mark besides, is none."""

from gpudash.protocol import Phase

PREPARE = ("copy", "prepare")
TRAIN = ("forward", "backward", "optimizer", "graph")
PHASES = (
    *(Phase(name=name, label=name, lane="prepare") for name in PREPARE),
    *(Phase(name=name, label=name, lane="train") for name in TRAIN),
)
