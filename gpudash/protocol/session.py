"""What the session itself says to views and log, beside the plan and the commands that it sends."""

from typing import Literal, TypeAlias

from .commands import Slowable
from .records import Record, Settings

Sides: TypeAlias = tuple[float | None, float | None]
"""Values of a and of b. None = not measured."""


class NewRow(Record, frozen=True, kw_only=True):
    """The user begins a new row of results with the active settings."""


class Notice(Record, frozen=True, kw_only=True):
    """A message to the user about gpudash itself."""

    text: str
    """One sentence."""
    sink: str = ""
    """Name of the sink that it is about, if any."""
    hinders: bool = False
    """Whether that sink gets nothing, until its next notice."""


class EnergyFound(Record, frozen=True, kw_only=True, tag=False):
    """Energy of a sample under both settings of a comparison."""

    per: Literal["sample", "step"]
    """`step` if it is not known how many samples a step has."""
    pairs: int
    """Pairs of blocks whose energy is known."""
    joules: tuple[float, float]
    """Of a sample, or of a step, under a and under b."""
    within: tuple[float, float]
    """Half of the 95 % interval of each, without the error of the sensor."""
    change: float
    """Energy under b over that under a, less 1: negative if b takes less."""
    low: float | None
    high: float | None
    """Ends of the interval of `change`."""
    confidence: float
    pairs_j: tuple[tuple[float, float], ...] = ()
    """Joules of a sample, or of a step, of the blocks of each pair: under a and under b."""
    sensor: float
    """Systematic error of the sensor, relative: in the joules, not in their ratio."""


CHANGES = ("command", "version")
"""What two trainings may differ in, each started by itself."""
NOT_COMPARED = "losses not compared"


class ComparisonShown(Record, frozen=True, kw_only=True):
    """An A/B comparison, running or concluded. Changes are relative: 0.05 is 5 % faster."""

    lever: str
    """Or what else differs: `CHANGES`."""
    a: str
    b: str
    pairs: int
    """Number of pairs of blocks measured."""
    planned_pairs: int
    change: float | None
    """Throughput of b over that of a, minus 1."""
    low: float | None
    high: float | None
    history: tuple[tuple[float, float, float], ...]
    """Low, change and high after each pair from the first one on that gives an interval."""
    sides: dict[str, Sides] = {}
    """Values of a and of b by metric, those of `COMPARED`: geometric means over the blocks, so that
    the `change` is that of the rates."""
    core_wait_pct: float | None = None
    """Core wait while both were measured: a high one means that other load affects the verdict."""
    verdict: str | None
    failure: str | None
    """Why there will be no verdict."""
    losses: str = NOT_COMPARED
    """Whether the training is the same, as a clause."""
    settings: Settings = {}
    """Settings of the other levers; filled in by the views."""
    precision: float | None = None
    """How closely the change is to be known, ±; None: to a quarter of it, or 1 %."""
    blocks: str = ""
    """Sides of the measured blocks in order: `ABBA`."""
    check_passed: bool | None = None
    """Whether the control has found no difference; None while it has too few pairs."""
    goes_on: bool = False
    """Whether it began with the pairs of the one before, whose verdict it replaces."""
    energy: EnergyFound | None = None
    """None if it was not asked for, or is not known."""
    why_no_energy: str = ""
    """Why it is not known, as a clause; empty if it was not asked for."""
    gpus: int = 0
    """GPUs that the training has; 0 on a CPU."""
    confidence: float = 0.95
    """Of the interval."""
    is_sure: bool = False
    """Whether it is certain which value is faster: it may be ended now."""
    doing: str = ""
    """Of a tune, what it does, as a clause; then the comparison is that of its proof: the best so
    far, which has the name of b, against the start. Empty for an A/B."""
    start: Settings = {}
    """Of a tune, the values before it of the levers that the best changes …"""
    best: Settings = {}
    """… and their values in the best so far."""

    @property
    def of_starts(self) -> bool:
        """Whether two trainings are compared: its pairs are starts of both, not blocks."""
        return self.lever in CHANGES

    @property
    def proven(self) -> bool:
        """Whether it has ended and shown a difference: the interval excludes 0."""
        if self.verdict is None or self.low is None or self.high is None:
            return False
        return (self.low > 0 or self.high < 0) and self.check_passed is not False

    def of(self, metric: str) -> Sides:
        """Return the values of both sides."""
        return self.sides.get(metric, (None, None))

    @property
    def rates(self) -> Sides:
        """Rates of a and of b in `unit`; `change` is their relative difference."""
        return self.of("steps_per_s" if self.unit == "steps/s" else "samples_per_s")

    @property
    def unit(self) -> str:
        """Unit of `rates`; samples/s if the batch size differs, as steps are not equal then."""
        return "samples/s" if self.lever == "batch_size" else "steps/s"

    @property
    def is_over(self) -> bool:
        """Whether it has ended, with a verdict or a failure."""
        return self.verdict is not None or self.failure is not None


class Slope(Record, frozen=True, kw_only=True, tag=False):
    """By how much a step gets longer with a part of it: 1 where nothing hides it, 0 with slack."""

    part: Slowable
    slope: float | None = None
    """None before the first round of blocks."""
    low: float | None = None
    high: float | None = None
    """Ends of the 95 % interval; None before the second round."""
    why_not: str = ""
    """Why this part cannot be slowed, as a clause."""
    modelled: tuple[float, float] | None = None
    """Least and most by the model of the step; None without one."""


class SlowingShown(Record, frozen=True, kw_only=True):
    """A proof by slowing, running or over: parts of a step are delayed in turns."""

    delay_ms: float
    """Delay in each step of a block that is slowed."""
    slopes: tuple[Slope, ...]
    rounds: int = 0
    """Number of rounds measured: a block without delay and one for each part."""
    expected_s: float | None = None
    """Seconds that the fewest rounds take."""
    is_over: bool = False
    failure: str = ""
    """Why nothing was found."""

    def of(self, part: str) -> Slope | None:
        """Return the slope of a part; None if it was not measured twice or more."""
        found = next((one for one in self.slopes if one.part == part), None)
        return found if found is not None and found.low is not None else None


class Straggler(Record, frozen=True, kw_only=True, tag=False):
    """The rank that the others wait for, and the phase in which it is slower."""

    rank: int
    phase: str
    """As `Phase.name`, or `data`, `host`, `compute` (all of it); empty if unknown."""
    excess_ms: float
    """How much longer the phase takes in a step than the other ranks' median."""
    slower_pct: float
    """The excess as a share of the step."""
    others_wait_ms: float | None = None
    """How much longer the others are in the collectives than this rank; None if none waits."""
    kind: Literal["persistent", "wandering", "imbalance"] = "persistent"
    """`wandering`: the slow rank changes. `imbalance`: the rank has more work."""
    why: str = ""
    """The cause as GPU or host show it, as a clause."""


class StragglerShown(Record, frozen=True, kw_only=True):
    """The slow rank has changed, or what is known of it: a replay shows it as it was shown."""

    straggler: Straggler | None
    """None if no rank is slow any more."""


class Playback(Record, frozen=True, kw_only=True):
    """State of a replay; positions are in seconds since the recording began."""

    name: str
    """Name of the file."""
    position_s: float = 0.0
    length_s: float = 0.0
    """Length of the file so far."""
    speed: float = 1.0
    """Seconds of the recording per second."""
    playing: bool = True
    following: bool = False
    """Whether it is at the end of a file that may still grow."""
    markers: tuple[tuple[float, str], ...] = ()
    """All markers of the recording: position, label."""
