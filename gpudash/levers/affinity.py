"""Keeps a process and its loader workers on the cores beside the GPU, as `/sys` tells them.

Where a host has several NUMA nodes, memory and the GPU's link are nearer there.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from ..instrument import loader_workers
from ..process_levers import OWN
from ..protocol.records import Settings
from ..protocol.training import Lever
from ..training.commanded import Refusal
from .known import NEAR
from .offers import absent
from .training_objects import TrainingObjects

SYS, PROC = Path("/sys"), Path("/proc")
SOURCE = "os.sched_setaffinity"


class Affinity:
    """The lever `affinity`."""

    def __init__(self) -> None:
        self._main: set[int] = set()  # the own cores of the thread that trains, while it is moved
        self._own: dict[int, set[int]] = {}  # those of each thread then, by its id

    def update(self, found: TrainingObjects) -> None:
        if not self._main:  # else the cores are the lever's
            self._refusal = _why_not(on_gpu=found.device.type == "cuda")

    @property
    def offers(self) -> tuple[Lever, ...]:
        summary = (
            "On which cores the process and its loader workers run: own, as the script has it; "
            "near, those beside the GPU. Helps where a host has several NUMA nodes."
        )
        if self._refusal and not self._main:
            return (absent("affinity", self._refusal, summary=summary, source=SOURCE),)
        offer = Lever(
            name="affinity",
            kind="choice",
            default=OWN,
            choices=(OWN, NEAR),
            summary=summary,
            source=SOURCE,
        )
        return (offer,)

    @property
    def settings(self) -> Settings:
        return {"affinity": NEAR if self._main else self.offers[0].default}

    def apply(self, wanted: Settings) -> None:
        if (wanted["affinity"] == NEAR) == bool(self._main):
            return
        if self._main:  # what has started since, as loader workers, is as the thread that trains
            for thread in _threads():
                _keep_on(thread, self._own.get(thread, self._main))
            self._main, self._own = set(), {}
            return
        main = os.sched_getaffinity(0)
        near = near_cores(SYS, main)
        self._main, self._own = main, {one: _cores_of(one) for one in _threads()}
        for thread, cores in self._own.items():
            _keep_on(thread, cores & near)


def _why_not(*, on_gpu: bool) -> str | None:
    if not hasattr(os, "sched_getaffinity"):
        return "this system keeps no process on cores"
    if not on_gpu:
        return "the training uses no GPU"
    try:
        near_cores(SYS, os.sched_getaffinity(0))
    except Refusal as refusal:
        return str(refusal)
    return None


def near_cores(sys: Path, own: set[int]) -> set[int]:
    """Return those of these cores that are beside the GPU.

    Raises Refusal if they are not known, or no choice.
    """
    lists = {one.name: one / "cpulist" for one in sys.glob("devices/system/node/node[0-9]*")}
    if len(lists) < 2:
        raise Refusal("the host has one NUMA node")
    gpu = gpu_address()
    node = f"node{_read(sys / 'bus/pci/devices' / gpu / 'numa_node')}"
    if node not in lists:  # -1 in most virtual machines
        raise Refusal(f"the host does not say at which NUMA node GPU {gpu} is")
    near = own.intersection(_listed(_read(lists[node])))
    if near in (set(), own):
        how = "all" if near else "none"
        raise Refusal(f"{how} of the training's cores are beside GPU {gpu}")
    return near


def gpu_address() -> str:
    """Return its PCI address as `/sys` has it. Raises Refusal."""
    gpu: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    try:
        return f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"
    except AttributeError:
        raise Refusal("this torch does not tell the GPU's PCI address") from None


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text().strip()
    return ""


def _listed(cores: str) -> Iterable[int]:
    """Yield those of a list such as `0-3,8`."""
    for part in filter(None, cores.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _threads() -> list[int]:
    """Return the ids of all threads of the process and of its loader workers."""
    tasks = (PROC / str(pid) / "task" for pid in (os.getpid(), *loader_workers.pids()))
    return [int(one.name) for one in chain.from_iterable(map(_inside, tasks))]


def _inside(folder: Path) -> list[Path]:
    with suppress(OSError):  # it has ended
        return list(folder.iterdir())
    return []


def _cores_of(thread: int) -> set[int]:
    with suppress(OSError):
        return os.sched_getaffinity(thread)
    return set()


def _keep_on(thread: int, cores: set[int]) -> None:
    with suppress(OSError):  # it has ended, or none of these is its own
        os.sched_setaffinity(thread, cores)
