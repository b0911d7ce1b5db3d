"""What a screen or a command line asks of the levers of a training: names, values, refusals."""

from collections.abc import Iterable, Mapping

from gpudash.errors import UsageError
from gpudash.protocol.readings import GpuReading
from gpudash.protocol.training import SCRIPT, SWITCH, Lever
from workloads.levers import LeverError
from workloads.nearest import did_you_mean, not_valid, unknown

OF_MODELS: Mapping[str, tuple[str, ...]] = {
    "precision": ("fp32", "cudnn_tf32", "bf16", "fp16", "tf32"),
    "channels_last": SWITCH,
    "compile": SWITCH,
}
"""What may differ between models that train and frozen ones."""
OF_FROZEN = {f"frozen_{name}": values for name, values in OF_MODELS.items()}
"""The same of the frozen ones alone: offered where there are any."""
OF_SCRIPTS: Mapping[str, range | tuple[str, ...]] = {
    "num_workers": range(257),
    "prefetch_factor": range(1, 257),
    "pin_memory": SWITCH,
    **OF_MODELS,
    "fused_optimizer": ("fused", "foreach", "single"),
    **OF_FROZEN,
    "batch_size": (),
}
"""The levers that some script may offer, and all values that one may have there, for refusals
before it starts. Which of them this script has it says once it trains."""
OF_TRAINING = ("batch_size", "data", "model_scale", "seed")
"""Levers that change what is trained, not how fast: proposed after all others, and tuned only if
the user names them."""


def find(levers: Iterable[Lever], name: str) -> Lever:
    """Return the lever called `name`. Raises LeverError, listing the valid names."""
    known = {lever.name: lever for lever in levers}
    if name not in known:
        raise LeverError(unknown("lever", name, known))
    return known[name]


def canonical(lever: Lever, text: str) -> str:
    """Return a value in its one spelling. Raises LeverError, listing the valid ones."""
    try:
        return lever.canonical(text)
    except ValueError:
        hint = did_you_mean(text, lever.values)
        valid = f"valid: {lever.valid}{hint}"
        raise LeverError(f"lever {lever.name}: {text!r} is not valid; {valid}") from None


NO_FROZEN = "no step has called a model without an optimizer"
NEEDS_ROOT = {
    "power_limit": "needs root: nvidia-smi -pl WATTS",
    "sm_clock": "needs root: nvidia-smi -lgc MHZ",
}
"""Levers of the GPU's driver, each with why it cannot be moved here. gpudash never moves one."""


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
    valid = OF_SCRIPTS.get(name)
    if valid is None:
        raise UsageError(not_valid("lever", name, [one for one in OF_SCRIPTS if OF_SCRIPTS[one]]))
    if not valid:
        raise UsageError(f"lever {name} cannot be moved: a script sets its batch size itself")
    known = {SCRIPT, *map(str, valid)}
    for value in values:
        if value not in known:
            numbers = isinstance(valid, range)
            whole = f"a whole number from {valid[0]} to {valid[-1]}" if numbers else ""
            raise UsageError(
                f"lever {name}: {value!r} is not valid; "
                f"valid: {SCRIPT}, {whole or ', '.join(map(str, valid))}"
            )


def refusal(name: str, levers: Iterable[Lever]) -> str | None:
    """Return why a script's lever cannot be moved, as a clause; None without any levers."""
    if name in NEEDS_ROOT:
        return NEEDS_ROOT[name]
    of_name = {lever.name: lever for lever in levers}
    if not of_name:
        return None
    if name not in of_name:
        return NO_FROZEN if name in OF_FROZEN else "only a workload of gpudash's own has it"
    return of_name[name].refusal
