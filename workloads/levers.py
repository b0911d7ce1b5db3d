"""Levers: the typed, named choices of a workload.

A lever has its valid values, its default, its description, and when a change takes effect. The
training makes the change. This module never imports torch, so that a command line or a screen can
list and check levers quickly. Nor does it import `dataclasses`, which takes longer than Python's
own start and would delay each TAB on the command line.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from workloads.nearest import did_you_mean, unknown

Value: TypeAlias = bool | int | float | str
Effect: TypeAlias = Literal["next step", "new loader", "rebuilt model"]
Numerics: TypeAlias = Literal["same", "rounding", "training"]
"""`same`: the same bits; `rounding`: the same training, rounded otherwise; `training`: another."""
NUMERICS: Mapping[str, Numerics] = {
    **dict.fromkeys(("num_workers", "pin_memory", "prefetch_factor", "input"), "same"),
    **dict.fromkeys(("pipelined", "backward_thread", "cuda_graph", "rotation"), "same"),
    **dict.fromkeys(("gradient_as_bucket_view", "static_graph", "gc", "affinity"), "same"),
    **dict.fromkeys(("precision", "channels_last", "compile", "fused_optimizer"), "rounding"),
    **dict.fromkeys(("frozen_precision", "frozen_channels_last", "frozen_compile"), "rounding"),
    **dict.fromkeys(("bucket_cap_mb", "gradient_compression", "augment_on", "loss"), "rounding"),
    **dict.fromkeys(("threads", "grad_sync"), "rounding"),
    **dict.fromkeys(("batch_size", "data", "model_scale", "seed"), "training"),
}
"""What a lever changes in the numbers. One of the user's own, which is not here, may do all."""
NEXT = "next"
"""Stands for the next higher value of a lever."""


class LeverError(ValueError):
    """A lever or a value that does not exist; the message lists the valid ones."""


class Known(Protocol):
    """What a refusal says of a lever, in whatever form."""

    @property
    def name(self) -> str: ...
    @property
    def valid(self) -> str: ...
    @property
    def values(self) -> tuple[str, ...]: ...


KnownT = TypeVar("KnownT", bound=Known)


class Lever(ABC):
    """The base of levers. `default` and every value have one canonical text form."""

    def __init__(
        self,
        *,
        name: str,
        summary: str,
        source: str,
        effect: Effect,
        helps: Mapping[str, str] | None = None,
        waits: tuple[Mapping[str, str], ...] = (),
        needs_gpu: bool = False,
        numerics: bool = False,
    ) -> None:
        self.name = name
        self.summary = summary
        """One sentence: what it does, and when it helps."""
        self.source = source
        """Source of the technique or of the value."""
        self.effect = effect
        self.helps = dict(helps or {})
        """How a step gets shorter with a value: the word of an effect on the model of a step."""
        self.waits = waits
        """Settings that make the host wait for the device within a step."""
        self.needs_gpu = needs_gpu
        """Whether a CPU refuses it, or it does nothing there."""
        self.numerics = numerics
        """Whether another value changes the computed numbers, by more than rounding."""

    @property
    @abstractmethod
    def default_text(self) -> str:
        """The default in its canonical text form."""

    @property
    @abstractmethod
    def valid(self) -> str:
        """The valid values, for a message or a table."""

    @property
    @abstractmethod
    def values(self) -> tuple[str, ...]:
        """All valid values, if they are names; empty for a number."""

    @abstractmethod
    def parse(self, text: str) -> Value:
        """Return the value that `text` names. Raises LeverError."""

    @abstractmethod
    def step(self, text: str, direction: int) -> str:
        """Return the neighbouring value, upwards (+1) or downwards (-1), as text."""

    def canonical(self, text: str) -> str:
        """Return `text` in the canonical form. Raises LeverError."""
        return text_of(self.parse(text))


class Switch(Lever):
    """On or off."""

    def __init__(self, *, default: bool, **about: Any) -> None:
        super().__init__(**about)
        self.default = default

    @property
    def default_text(self) -> str:
        """See Lever."""
        return text_of(self.default)

    @property
    def valid(self) -> str:
        """See Lever."""
        return ", ".join(self.values)

    @property
    def values(self) -> tuple[str, ...]:
        """See Lever."""
        return ("off", "on")

    def parse(self, text: str) -> bool:
        """See Lever."""
        if text not in self.values:
            raise refused(self, text)
        return text == "on"

    def step(self, text: str, direction: int) -> str:  # noqa: ARG002  # either way, the other value
        """See Lever."""
        return text_of(not self.parse(text))


MOST_DIGITS = 100
"""Of a number that may be out of bounds."""
AUTO = "auto"
"""The choice that is resolved to another one by the device."""


RENAMED = {("augment_on", "gpu"): "batched"}
"""Values by the names that they had before, which are still taken."""


class Choice(Lever):
    """One of a few names."""

    def __init__(self, *, default: str, choices: tuple[str, ...], **about: Any) -> None:
        super().__init__(**about)
        self.default = default
        self.choices = choices

    @property
    def default_text(self) -> str:
        """See Lever."""
        return self.default

    @property
    def valid(self) -> str:
        """See Lever."""
        return ", ".join(self.choices)

    @property
    def values(self) -> tuple[str, ...]:
        """See Lever."""
        return self.choices

    def parse(self, text: str) -> Value:
        """See Lever."""
        found = text if text in self.choices else RENAMED.get((self.name, text))
        if found not in self.choices:
            raise refused(self, text)
        return found

    def step(self, text: str, direction: int) -> str:
        """See Lever."""
        text = self.canonical(text)
        return self.choices[(self.choices.index(text) + direction) % len(self.choices)]


class Count(Lever):
    """A whole number within bounds; `+` and `-` go to the next power of two."""

    def __init__(
        self, *, default: int, minimum: int, maximum: int, bound: str = "", **about: Any
    ) -> None:
        super().__init__(**about)
        self.default = default
        self.minimum = minimum
        self.maximum = maximum
        self.bound = bound
        """Why its range is no wider here, as a clause; empty: it is so everywhere."""

    @property
    def default_text(self) -> str:
        """See Lever."""
        return text_of(self.default)

    @property
    def valid(self) -> str:
        """See Lever."""
        because = f" ({self.bound})" if self.bound else ""
        return f"a whole number from {self.minimum} to {self.maximum}{because}"

    @property
    def values(self) -> tuple[str, ...]:
        """See Lever."""
        return ()

    def parse(self, text: str) -> int:
        """See Lever."""
        number = self._number(text, len(str(self.maximum)))
        if not self.minimum <= number <= self.maximum:
            raise refused(self, text)
        return number

    def step(self, text: str, direction: int) -> str:
        """See Lever. The value may be one that it does not take, of an older recording."""
        number = self._number(text, MOST_DIGITS)
        above = 1 << number.bit_length()  # the next power of two, strictly above
        below = 1 << max((number - 1).bit_length() - 1, 0) if number > 1 else 0
        return text_of(min(max(above if direction > 0 else below, self.minimum), self.maximum))

    def _number(self, text: str, most_digits: int) -> int:
        # int() would also accept "1_0", " 8" and digits other than 0-9
        if not (text.isascii() and text.isdigit()) or len(text) > most_digits:
            raise refused(self, text)
        return int(text)


def text_of(value: Value) -> str:
    """Return the canonical text form of a value: `on`, `off`, digits or the name."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def phrase(settings: Mapping[str, str]) -> str:
    """Return the settings as text: `batch_size=16, pipelined=on`."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def refused(lever: Known, text: str) -> LeverError:
    hint = did_you_mean(text, lever.values)
    return LeverError(f"lever {lever.name}: {text!r} is not valid; valid: {lever.valid}{hint}")


def find(levers: Iterable[KnownT], name: str) -> KnownT:
    """Return the lever called `name`. Raises LeverError, listing the valid names."""
    known = {lever.name: lever for lever in levers}
    if name not in known:
        raise LeverError(unknown("lever", name, known))
    return known[name]


def resolve(levers: Iterable[Lever], changes: Mapping[str, str]) -> dict[str, str]:
    """Return every lever's canonical value, in order: from `changes`, or its default.

    Raises LeverError for an unknown lever or value.
    """
    levers = tuple(levers)
    for name in changes:
        find(levers, name)
    return {
        lever.name: lever.canonical(changes.get(lever.name, lever.default_text)) for lever in levers
    }
