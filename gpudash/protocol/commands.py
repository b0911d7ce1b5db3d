"""What the session asks of a training process."""

from typing import Literal, TypeAlias

from .records import Record, Settings


class Plan(Record, frozen=True, kw_only=True):
    """The training that a worker is started with."""

    workload: str
    settings: Settings
    """Levers left out have their defaults."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda` or `cuda:N`."""
    steps: int | None = None
    duration_s: float | None = None
    nproc: int = 1
    """Number of processes that train the workload together, on one machine."""
    command: tuple[str, ...] = ()
    """The user's command line; empty for a workload."""


class Command(Record, frozen=True, kw_only=True):
    """A request of the session. Exactly one event answers it, by its id."""

    id: int
    """Counts up within a session."""
    at_step: int | None = None
    """With several ranks, the step after which all obey; None: as soon as possible."""


class Change(Command, frozen=True, kw_only=True):
    """Set these levers at the next step boundary."""

    settings: Settings


class Pause(Command, frozen=True, kw_only=True):
    """Stop between two steps."""


class Resume(Command, frozen=True, kw_only=True):
    """Go on after a Pause."""


class Stop(Command, frozen=True, kw_only=True):
    """Finish the step in progress, report it and exit."""


Slowable: TypeAlias = Literal["loader", "host", "device"]
"""What can be slowed: the making of batches, the host, the device's training stream."""


class Slow(Record, frozen=True, kw_only=True, tag=False):
    """A delay in each step of a block, of rank 0. It changes no number of the training."""

    part: Slowable
    ms: float


class Block(Record, frozen=True, kw_only=True):
    """A stretch of training under one setting, long enough to be measured."""

    number: int
    """Counts up within a run of blocks; no block is run twice."""
    changes: Settings
    """Changes to the settings from before the blocks."""
    min_steps: int
    min_s: float
    """The block lasts until `min_steps` and `min_s` are reached after its warm-up. Its last step
    does not count, as on two streams nothing runs beside it."""
    wall_clock: Literal["instrumented", "uninstrumented"] | None = None
    """Time the block by the wall clock, with or without instruments, to measure their cost."""
    slow: Slow | None = None
    """With a delay of 0 ms the block is measured as those with one."""
    waits: bool = False
    """The training pauses before it, until a Resume: meanwhile another one is measured."""


class Blocks(Command, frozen=True, kw_only=True):
    """Run these blocks one after the other; they replace the run's blocks that still wait.

    The worker switches between blocks by itself. Afterwards it goes back to the settings from
    before the first one. An empty list of blocks, a Change and another run end the run.
    """

    run: int
    """Number of the comparison or the sweep; counts up within a session."""
    blocks: tuple[Block, ...]


PROFILE_LIMIT_S = 30.0
"""A profile ends after this time with the steps so far: a trace grows with each operator."""


class Profile(Command, frozen=True, kw_only=True):
    """Trace the next steps with torch.profiler; answered by a Profiled or a Refused."""

    steps: int
    path: str
    """Path for the Chrome trace."""


class Memory(Command, frozen=True, kw_only=True):
    """Record who owns device memory in the next steps; answered by MemoryOwners or a Refused."""


class Rehearse(Command, frozen=True, kw_only=True):
    """Time levers on the newest calls of the model, without moving any; answered by Rehearsed."""


class Stacks(Command, frozen=True, kw_only=True):
    """Read the stack of each training process; each answers with a Stack. The script goes on."""


class Figures(Record, frozen=True, kw_only=True):
    """What was measured, for the run that the script has open in W&B. No event answers."""

    step: int
    """The newest training step that they are of."""
    values: dict[str, float]
    texts: dict[str, str] = {}


FOR_ALL = Change | Blocks | Pause | Resume | Stop
"""The commands that all ranks of a training obey at the same step, or none."""
AnyCommand: TypeAlias = (
    Change | Pause | Resume | Stop | Blocks | Profile | Memory | Rehearse | Stacks
)
CommandOrFigures: TypeAlias = AnyCommand | Figures
"""All that a training process is sent."""
