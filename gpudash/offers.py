"""The levers of a training; conversion between one and the `LeverOffer` that describes it."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from gpudash.errors import UsageError
from gpudash.format import ABSENT
from gpudash.protocol.readings import GpuReading
from gpudash.protocol.training import SCRIPT, LeverOffer
from workloads import CATALOGUE
from workloads.levers import MOST_DIGITS, Choice, Count, Lever, Switch
from workloads.nearest import not_valid

SWITCH = ("off", "on")
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
ABOUT = ("name", "summary", "source", "effect", "needs_gpu", "numerics")
"""What a lever and its offer say alike."""


def offer_of(lever: Lever) -> LeverOffer:
    about: dict[str, Any] = {name: getattr(lever, name) for name in ABOUT}
    about["default"] = lever.default_text
    about["helps"] = tuple(lever.helps.items())
    about["waits"] = tuple(tuple(one.items()) for one in lever.waits)
    if isinstance(lever, Switch):
        return LeverOffer(kind="switch", **about)
    if isinstance(lever, Count):
        about |= {"minimum": lever.minimum, "maximum": lever.maximum, "bound": lever.bound}
        return LeverOffer(kind="count", **about)
    return LeverOffer(kind="choice", choices=lever.values, **about)


def lever_of(offer: LeverOffer) -> Lever:
    about: dict[str, Any] = {name: getattr(offer, name) for name in ABOUT}
    about["helps"], about["waits"] = dict(offer.helps), tuple(map(dict, offer.waits))
    if offer.kind == "switch":
        return Switch(default=offer.default == "on", **about)
    if offer.kind == "count" and offer.default.isdecimal() and len(offer.default) <= MOST_DIGITS:
        about |= {"minimum": offer.minimum, "maximum": offer.maximum, "bound": offer.bound}
        return Count(default=int(offer.default), **about)
    return Choice(default=offer.default or ABSENT, choices=offer.choices, **about)


def levers_of(
    workload: str, settings: Mapping[str, str], offers: tuple[LeverOffer, ...] = ()
) -> tuple[Lever, ...]:
    """Without offers, take those of a workload of the catalogue."""
    entry = CATALOGUE.get(workload)
    return _offered(offers) or (entry.levers_with(settings) if entry else ())


@lru_cache(maxsize=2)
def _offered(offers: tuple[LeverOffer, ...]) -> tuple[Lever, ...]:
    """Return the same objects for the same offers, to avoid repainting."""
    return tuple(map(lever_of, offers))


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
    about = {"name": name, "summary": f"{summary} It {NEEDS_ROOT[name]}", "source": "NVML"}
    return Choice(default=value, choices=(value,), effect="next step", needs_gpu=True, **about)


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


def refusal(name: str, offers: Iterable[LeverOffer]) -> str | None:
    """Return a clause, or None: without offers, a workload of the catalogue refuses by itself."""
    if name in NEEDS_ROOT:
        return NEEDS_ROOT[name]
    of_name = {offer.name: offer for offer in offers}
    if not of_name:
        return None
    if name not in of_name:
        return NO_FROZEN if name in OF_FROZEN else "only a workload of gpudash's own has it"
    return of_name[name].refusal
