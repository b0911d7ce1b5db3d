"""Readings of GPUs and processes, and what is known of other jobs."""

from typing import TypeAlias

from .records import Record


class _Reading(Record, frozen=True, kw_only=True):
    """Values read at one moment, by their names in `metrics.METRICS` or others.

    A value that was not measured is absent.
    """

    at_s: float
    values: dict[str, float | str] = {}

    def number(self, name: str) -> float | None:
        """Return this value; None if it was not measured or is no number."""
        value = self.values.get(name)
        return None if isinstance(value, str) else value


class GpuReading(_Reading, frozen=True, kw_only=True):
    """One reading of one GPU."""

    index: int
    uuid: str
    name: str
    activity_since_s: float | None = None
    """Begin of the window over which activity is a mean; repeated until activity is read again."""
    energy_at_s: float | None = None
    """When the counter `energy_j` was read; repeated until it is read again."""
    others_pct: float | None = None
    """Percent of the time in which processes outside of the training had work on its SMs."""
    busiest_other: str = ""
    """The one of them with most, as `train.py (pid 42)`; empty if none is known."""


class HostReading(_Reading, frozen=True, kw_only=True):
    """One reading of a rank's processes; rank 0's includes gpudash itself."""

    pid: int | None = None
    """The training process; the rank's other processes are its descendants."""


class EnergyTick(Record, frozen=True, kw_only=True):
    """The energy counter of a GPU has moved on; read only where energy was asked for."""

    at_s: float
    uuid: str
    energy_j: float
    within_s: float
    """Largest error of `at_s`."""
    period_s: float | None = None
    """Seconds between two ticks; None until it is measured."""


Reading: TypeAlias = GpuReading | HostReading


class Job(Record, frozen=True, kw_only=True, tag=False):
    """A process that does not belong to the training."""

    pid: int
    name: str
    """The name of its program, or of the script that its interpreter runs."""
    cores: float
    """Cores that it used lately."""


class OtherJobs(Record, frozen=True, kw_only=True):
    """What processes of others used of the machine's cores; read while the training lacks cores."""

    at_s: float
    used_cores: float
    """Of all of them together."""
    cores: int
    """Cores of the machine."""
    busiest: tuple[Job, ...] = ()
    """At most two, the busiest first."""


class GpuMissing(Record, frozen=True, kw_only=True):
    """What of the GPUs cannot be read has changed."""

    why: str | None
    """Why rank 0's is not read, as a sentence; None if it is."""
    values: dict[str, str] = {}
    """Name of a reading of rank 0's GPU that is missing while others are read → the reason."""
    others: dict[str, str] = {}
    """UUID of a GPU of another rank that was read and no longer is → the reason."""
