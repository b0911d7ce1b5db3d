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
    helps_by_value: Mapping[str, str]
    """Its values beside `own`, each with the word of its effect on the model of a step."""
    summary: str
    source: str

    @property
    def values(self) -> tuple[str, ...]:
        return (OWN, *self.helps_by_value)


OF_PROCESS = (
    ProcessLever(
        "gc",
        {"frozen": "fewer collections", "rare": "rarer collections"},
        "When Python collects garbage: own, as the training has it; frozen, without another look "
        "at what there is now; rare, a hundred times as seldom. Helps where collections stop the "
        "step.",
        "gc.freeze, gc.set_threshold",
    ),
    ProcessLever(
        "threads",
        dict.fromkeys(("1", "2", "4", "8", "16", "32", "64"), "as many threads as cores"),
        "Threads that compute one operator on the CPU: own, as the training has it. Fewer help "
        "where not each of them gets a core, more where cores are free and operators large.",
        "torch.set_num_threads",
    ),
)


def split(settings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings without these levers, and those of all these levers."""
    process = {lever.name: settings.get(lever.name, OWN) for lever in OF_PROCESS}
    return {name: settings[name] for name in settings if name not in process}, process
