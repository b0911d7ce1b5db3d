"""What all families of levers share: offers, values, refusals."""

from collections.abc import Callable
from typing import Protocol

from ..protocol.records import Settings
from ..protocol.training import SCRIPT, Lever
from ..training.commanded import Refusal
from .training_objects import Call, TrainingObjects

UNKNOWN = "–"
"""The value of a refused lever whose value is not known."""


class Family(Protocol):
    """Levers that are implemented together."""

    @property
    def offers(self) -> tuple[Lever, ...]: ...

    @property
    def settings(self) -> Settings: ...

    def update(self, found: TrainingObjects) -> None:
        """Read also the script's own values from these objects."""

    def apply(self, wanted: Settings) -> None:
        """Make the wanted values of this family active. If it raises, nothing has changed."""


class Computing(Family, Protocol):
    """A family that changes how a root's call is computed, and could break it."""

    def around(self) -> Callable[[Call], Call] | None: ...


def absent(name: str, why: str, *, summary: str, source: str, value: str = UNKNOWN) -> Lever:
    return Lever(
        name=name,
        kind="choice",
        default=value,
        choices=(value,),
        summary=summary,
        source=source,
        refusal=why,
    )


def choice(
    name: str,
    own: str,
    why_not: dict[str, str | None],
    *,
    summary: str,
    source: str,
    helps: tuple[tuple[str, str], ...] = (),
) -> Lever:
    """Offer the script's own value, and those that `why_not` has no reason for."""
    impossible = {value: why for value, why in why_not.items() if why and value != own}
    possible = [value for value in why_not if value not in impossible and value != own]
    return Lever(
        name=name,
        kind="choice",
        default=own,
        choices=(own, *possible),
        impossible=tuple(impossible.items()),
        summary=summary,
        source=source,
        helps=helps,
        numerics=True,
        refusal=None if possible else ", ".join(dict.fromkeys(impossible.values())),
    )


def canonical(offer: Lever, text: str) -> str:
    """Return a value in its canonical spelling. Raises Refusal."""
    if text == SCRIPT:
        return offer.default
    for value, why in offer.impossible:
        if text == value:
            raise Refusal(f"{offer.name}={text}: {why}")
    if offer.refusal:
        raise Refusal(f"{offer.name}: {offer.refusal}")
    try:
        return offer.canonical(text)
    except ValueError:
        raise Refusal(f"{offer.name}: {text!r} is not valid; valid: {offer.valid}") from None


def on_off(value: bool) -> str:  # noqa: FBT001  # it is the value
    return "on" if value else "off"
