"""The levers of reference workloads as records.

They are known before a workload trains, and for recordings of one.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

from gpudash.protocol.training import Lever, LeverKind
from gpudash.workload_levers import SHARED
from workloads import CATALOGUE
from workloads.levers import Choice, Count, Switch, Value
from workloads.levers import Lever as WorkloadLever

ABOUT = ("name", "summary", "source", "effect", "needs_gpu", "numerics")
"""What both forms of a lever say alike."""
FORMS: Mapping[LeverKind, tuple[type[WorkloadLever], Callable[[str], Value], tuple[str, ...]]] = {
    "switch": (Switch, "on".__eq__, ()),
    "choice": (Choice, str, ("choices",)),
    "count": (Count, int, ("minimum", "maximum", "bound")),
}
"""A kind of lever → its class in the catalogue, how a default is read, what it says besides."""


def reference_levers(workload: str, settings: Mapping[str, str]) -> tuple[Lever, ...]:
    """Return those of a workload with these settings; none of a script."""
    entry = CATALOGUE.get(workload)
    if entry is None:
        return ()
    return _records((*entry.levers_with(settings), *SHARED), tuple(entry.on_cpu.items()))


@lru_cache(maxsize=8)
def _records(
    levers: tuple[WorkloadLever, ...], on_cpu: tuple[tuple[str, str], ...]
) -> tuple[Lever, ...]:
    return tuple(record_of(lever, dict(on_cpu).get(lever.name, "")) for lever in levers)


def record_of(lever: WorkloadLever, on_cpu: str = "") -> Lever:
    kind, has = next((kind, has) for kind, (of, _, has) in FORMS.items() if isinstance(lever, of))
    about = {name: getattr(lever, name) for name in (*ABOUT, *has)}
    return Lever(
        kind=kind,
        default=lever.default_text,
        on_cpu=on_cpu,
        helps=tuple(lever.helps.items()),
        waits=tuple(tuple(one.items()) for one in lever.waits),
        **about,
    )


def from_record(lever: Lever) -> WorkloadLever:
    """Undo `record_of`: a workload of the user's is described by another process."""
    of, read, has = FORMS[lever.kind]
    about = {"default": read(lever.default)} | {
        name: getattr(lever, name) for name in (*ABOUT, *has)
    }
    return of(helps=dict(lever.helps), waits=tuple(map(dict, lever.waits)), **about)
