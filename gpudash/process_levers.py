"""The levers of the process that trains: every training has them, a script or a workload.

They are listed here for the command line too, so nothing that is slow to import is. How they are
moved is in `gpudash.levers.process`.
"""

from collections.abc import Mapping
from typing import NamedTuple

OWN = "own"
"""The value that the process had by itself."""


class ProcessLever(NamedTuple):
    """A choice that takes effect at the next step and leaves the numbers as they are."""

    name: str
    others: tuple[str, ...]
    """Its values beside `own`."""
    summary: str
    source: str
    helps: str = ""
    """How a step gets shorter with another value: the word of an effect on the model of a step."""

    @property
    def values(self) -> tuple[str, ...]:
        return (OWN, *self.others)

    @property
    def helps_by_value(self) -> dict[str, str]:
        return dict.fromkeys(self.others, self.helps) if self.helps else {}


OF_PROCESS = (
    ProcessLever(
        "gc",
        ("frozen", "rare"),
        "When Python collects garbage: own, as the training has it; frozen, without another look "
        "at what there is now; rare, a hundred times as seldom. Helps where collections stop the "
        "step.",
        "gc.freeze, gc.set_threshold",
        "fewer collections",
    ),
    ProcessLever(
        "threads",
        ("1", "2", "4", "8", "16", "32", "64"),
        "Threads that compute one operator on the CPU: own, as the training has it. Fewer help "
        "where not each of them gets a core, more where cores are free and operators large.",
        "torch.set_num_threads",
        "as many threads as cores",
    ),
)


def split(settings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings without these levers, and those of all these levers."""
    process = {lever.name: settings.get(lever.name, OWN) for lever in OF_PROCESS}
    return {name: settings[name] for name in settings if name not in process}, process
