"""All levers that a workload takes: its own, and those of the process of any training."""

from gpudash.process_levers import OF_PROCESS, OWN
from workloads import Entry
from workloads.levers import Choice, Lever

SHARED = tuple(
    Choice(
        name=one.name,
        default=OWN,
        choices=one.values,
        effect="next step",
        summary=one.summary,
        source=one.source,
        helps=one.helps_by_value,
    )
    for one in OF_PROCESS
)


def levers_of(entry: Entry) -> tuple[Lever, ...]:
    return (*entry.levers, *SHARED)
