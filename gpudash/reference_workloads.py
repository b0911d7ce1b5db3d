"""The reference workloads as gpudash shows them: what each is, and its levers as records.

They are known before a workload trains, and for recordings of one.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gpudash.protocol.training import Lever
from workloads import CATALOGUE
from workloads.levers import Choice, Count, Switch
from workloads.levers import Lever as WorkloadLever

ABOUT = ("name", "summary", "source", "effect", "needs_gpu", "numerics")
"""What both forms of a lever say alike."""


def summaries() -> dict[str, str]:
    return {entry.name: entry.summary for entry in CATALOGUE.values()}


def reference_levers(workload: str, settings: Mapping[str, str]) -> tuple[Lever, ...]:
    """Return those of a workload with these settings; none of a script."""
    entry = CATALOGUE.get(workload)
    return _records(entry.levers_with(settings), tuple(entry.on_cpu.items())) if entry else ()


@lru_cache(maxsize=8)
def _records(
    levers: tuple[WorkloadLever, ...], on_cpu: tuple[tuple[str, str], ...]
) -> tuple[Lever, ...]:
    own = dict(on_cpu)
    return tuple(record_of(lever, own.get(lever.name, "")) for lever in levers)


def record_of(lever: WorkloadLever, on_cpu: str = "") -> Lever:
    about: dict[str, Any] = {name: getattr(lever, name) for name in ABOUT}
    about |= {"default": lever.default_text, "on_cpu": on_cpu}
    about["helps"] = tuple(lever.helps.items())
    about["waits"] = tuple(tuple(wait.items()) for wait in lever.waits)
    match lever:
        case Switch():
            return Lever(kind="switch", **about)
        case Count(minimum=minimum, maximum=maximum, bound=bound):
            return Lever(kind="count", minimum=minimum, maximum=maximum, bound=bound, **about)
    return Lever(kind="choice", choices=lever.values, **about)


def from_record(lever: Lever) -> WorkloadLever:
    """Undo `record_of`: a workload of the user's is described by another process."""
    about: dict[str, Any] = {name: getattr(lever, name) for name in ABOUT}
    about["helps"], about["waits"] = dict(lever.helps), tuple(map(dict, lever.waits))
    if lever.kind == "switch":
        return Switch(default=lever.default == "on", **about)
    if lever.is_number:
        about |= {"minimum": lever.minimum, "maximum": lever.maximum, "bound": lever.bound}
        return Count(default=int(lever.default), **about)
    return Choice(default=lever.default, choices=lever.choices, **about)
