"""What a screen or a command line asks of the levers of a training: names, values, refusals."""

from collections.abc import Iterable

from gpudash.errors import UsageError
from gpudash.levers.known import KNOWN, OF_FROZEN
from gpudash.protocol.readings import GpuReading
from gpudash.protocol.training import SCRIPT, Lever
from workloads.levers import refused
from workloads.nearest import not_valid

NO_FROZEN = "no step has called a model without an optimizer"
NEEDS_ROOT = {
    "power_limit": "needs root: nvidia-smi -pl WATTS",
    "sm_clock": "needs root: nvidia-smi -lgc MHZ",
}
"""Levers of the GPU's driver, each with why it cannot be moved here. gpudash never moves one."""


def canonical(lever: Lever, text: str) -> str:
    """Return a value in its one spelling. Raises LeverError, listing the valid ones."""
    try:
        return lever.canonical(text)
    except ValueError:
        raise refused(lever, text) from None


def of_driver(gpu: GpuReading | None) -> tuple[Lever, ...]:
    limit_w, clock_mhz = (gpu and gpu.number(name) for name in ("power_limit_w", "sm_clock_mhz"))
    found = []
    if limit_w is not None:
        what = "Power limit of the GPU: above it clocks slow down."
        found.append(_of_root("power_limit", f"{limit_w:.0f} W", f"{what} Less saves energy."))
        if clock_mhz is not None:
            what = "SM clock of the GPU. A fixed one steadies step times."
            found.append(_of_root("sm_clock", f"{clock_mhz:.0f} MHz", what))
    return tuple(found)


def _of_root(name: str, value: str, summary: str) -> Lever:
    return Lever(
        name=name,
        kind="choice",
        default=value,
        choices=(value,),
        summary=f"{summary} It {NEEDS_ROOT[name]}",
        source="NVML",
        needs_gpu=True,
        refusal=NEEDS_ROOT[name],
    )


def check_for_script(name: str, values: Iterable[str] = ()) -> None:
    """Raise UsageError for a lever that no script has, or for a value of it that none has."""
    if name not in KNOWN:
        raise UsageError(not_valid("lever", name, filter(KNOWN.get, KNOWN)))
    valid = KNOWN[name]
    if not valid:
        raise UsageError(f"lever {name} cannot be moved: a script sets its batch size itself")
    whole = f"a whole number from {valid[0]} to {valid[-1]}"
    shown = whole if isinstance(valid, range) else ", ".join(valid)
    for value in values:
        if value not in {SCRIPT, *map(str, valid)}:
            raise UsageError(f"lever {name}: {value!r} is not valid; valid: {SCRIPT}, {shown}")


def refusal(name: str, levers: Iterable[Lever]) -> str | None:
    """Return why a script's lever cannot be moved, as a clause; None without any levers."""
    if name in NEEDS_ROOT:
        return NEEDS_ROOT[name]
    reasons = {lever.name: lever.refusal for lever in levers}
    unknown = NO_FROZEN if name in OF_FROZEN else "only a workload of gpudash's own has it"
    return reasons.get(name, unknown if reasons else None)
