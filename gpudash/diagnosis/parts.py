"""The parts of a step: what each takes, and the step without it or with more of it."""

from typing import Any, NamedTuple

from gpudash.protocol.commands import Slowable


class Times(NamedTuple):
    """Durations of a step's parts in ms, which add up to no more than host and device had."""

    step: float
    data: float = 0.0
    """The step was longer by it."""
    loader: float = 0.0
    """Loader workers make a batch as often. A host that waits for batches takes all of them."""
    is_inline: bool = False
    """Whether the host makes batches itself: then nothing hides that."""
    no_core: float = 0.0
    """Host time, as all down to `allocating`: others have its core."""
    rollout: float = 0.0
    """Acting for what is learned from."""
    code: float = 0.0
    """The script's own code, beside launches."""
    blocked: float = 0.0
    """Off the CPU, neither for a batch nor for a core nor for the device."""
    collecting: float = 0.0
    compiling: float = 0.0
    allocating: float = 0.0
    """The driver is asked for memory, or given it back."""
    launch: float = 0.0
    alone: float = 0.0
    """While the host launches for so long, the device of one that waits has nothing to do."""
    waits: bool = False
    """Whether the host waits for the device within each step."""
    is_one: bool = False
    """Whether host and device are one resource: a CPU, which never waits for itself."""
    copy: float = 0.0
    blocks: bool = False
    """Whether the copy blocks the host."""
    communication: float = 0.0
    device: float = 0.0
    """What the device works beside copies and communication."""

    @property
    def beside_launches(self) -> float:
        """What the host does beside launches, batches and waits for the device."""
        return sum(part.ms(self) for part in BESIDE_LAUNCHES)


class ModelPart(NamedTuple):
    """A part of a step that is one of its times."""

    name: str
    slowed: tuple[Slowable, ...]
    """What is slowed to prove that it limits. Copies and collectives are in line with kernels."""
    fields: tuple[str, ...]
    """Of `Times`: what it takes, and what else goes with it."""
    missed: tuple[Slowable, ...] = ()
    """What may be slowed where it has slack."""

    def ms(self, times: Times) -> float:
        return float(getattr(times, self.fields[0]))

    def without(self, times: Times) -> Times:
        return times._replace(**dict[str, Any](dict.fromkeys(self.fields, 0.0)))

    def more(self, times: Times, ms: float) -> Times:
        return times._replace(**dict[str, Any]({self.fields[0]: self.ms(times) + ms}))


class _Data(ModelPart):
    def more(self, times: Times, ms: float) -> Times:
        if not times.loader and not times.is_inline:  # the loader hides it
            return times
        return times._replace(data=times.data + ms, loader=times.loader and times.loader + ms)


class _Wait(ModelPart):
    """The host's wait for the device within the step."""

    def ms(self, times: Times) -> float:
        is_real = times.waits and not times.is_one
        return (
            max(times.step - times.data - times.beside_launches - times.launch, 0.0)
            if is_real
            else 0.0
        )

    def without(self, times: Times) -> Times:
        return times._replace(waits=times.is_one)


DATA = _Data("data", ("loader",), ("data", "loader"))
CORE = ModelPart("no core", ("host",), ("no_core",))
ROLLOUT = ModelPart("rollout", ("host",), ("rollout",))
CODE = ModelPart("your code", ("host",), ("code",))
BLOCKED = ModelPart("blocked", ("host",), ("blocked",))
COLLECTING = ModelPart("collecting", ("host",), ("collecting",))
COMPILING = ModelPart("compiling", ("host",), ("compiling",))
ALLOCATING = ModelPart("allocator", ("host",), ("allocating",))
BESIDE_LAUNCHES = (CORE, ROLLOUT, CODE, BLOCKED, COLLECTING, COMPILING, ALLOCATING)
LAUNCH = ModelPart("launch", ("host",), ("launch",))
# the host is behind a wait of a phase before it can be delayed between two
WAIT = _Wait("wait", ("host", "device"), ("waits",), missed=("host",))
COPY = ModelPart("copy", ("device",), ("copy",))
COMMUNICATION = ModelPart("communication", ("device",), ("communication",))
DEVICE = ModelPart("device", ("device",), ("device",))
PARTS = (DATA, *BESIDE_LAUNCHES, LAUNCH, WAIT, COPY, COMMUNICATION, DEVICE)
