"""Levers on models without an optimizer, such as a frozen encoder, under names of their own."""

from collections.abc import Callable

from ..protocol.records import Settings, replace
from ..protocol.training import Lever
from .known import FROZEN
from .offers import Computing
from .training_objects import Call, TrainingObjects, modules_of

WHOLE = "TF32 is switched for all models: move precision"


class FrozenLevers:
    """A family for the frozen models; there is none while none of them was called."""

    def __init__(self, family: Computing) -> None:
        self._family = family
        self._is_there = False

    def update(self, found: TrainingObjects) -> None:
        self._is_there = bool(modules_of(found.frozen))
        self._family.update(found._replace(roots=found.frozen, optimizer_refs=()))

    @property
    def offers(self) -> tuple[Lever, ...]:
        return tuple(map(_renamed, self._family.offers)) if self._is_there else ()

    @property
    def settings(self) -> Settings:
        if not self._is_there:
            return {}
        return {FROZEN + name: value for name, value in self._family.settings.items()}

    def apply(self, wanted: Settings) -> None:
        """Put nothing in force without a wish for these models."""
        own = {name: wanted.get(FROZEN + name) for name in self._family.settings}
        if None not in own.values():
            self._family.apply({name: value for name, value in own.items() if value is not None})

    def around(self) -> Callable[[Call], Call] | None:
        return self._family.around()


def _renamed(offer: Lever) -> Lever:
    choices, impossible = offer.choices, dict(offer.impossible)
    if "tf32" in choices and offer.default != "tf32":
        choices = tuple(one for one in choices if one != "tf32")
        impossible["tf32"] = WHOLE
    helps = ((value, word) for value, word in offer.helps if value != "tf32")
    refusal = offer.refusal
    if refusal is None and offer.kind == "choice" and len(choices) == 1:
        refusal = ", ".join(dict.fromkeys(impossible.values()))
    return replace(
        offer,
        name=FROZEN + offer.name,
        summary=f"The same for models without an optimizer. {offer.summary}",
        choices=choices,
        impossible=tuple(impossible.items()),
        refusal=refusal,
        helps=tuple((value, f"{word} in frozen models") for value, word in helps),
    )
