"""All families of levers as one: settings are resolved, rehearsed and entered together."""

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import torch

from ..protocol.inspections import Timing
from ..protocol.records import Settings, replace
from ..protocol.training import LeverOffer
from ..training.levers import Refusal
from .channels_last import ChannelsLast
from .compile import Backend, Compile
from .frozen import OfFrozen
from .handover import Redirects
from .loader import LoaderLevers, batch_size
from .offers import Computing, Family, canonical
from .optimizer import OptimizerForm
from .precision import Precision
from .rehearsal import Took, rehearse, timed
from .training_objects import Call, TrainingObjects, modules_of

WARMUP_STEPS = 2
"""The allocator needs these to find its blocks."""


class ScriptLevers:
    """The levers of a user's script. Use them on the thread that trains, between two steps."""

    def __init__(
        self, found: TrainingObjects, redirects: Redirects, *, backend: Backend = "inductor"
    ) -> None:
        self._precision, self._channels_last = Precision(), ChannelsLast()
        # the first is the innermost around a root's call
        self._computing: tuple[Computing, ...] = (
            Compile(backend),
            self._channels_last,
            self._precision,
        )
        self._frozen_precision = Precision()
        self._of_frozen = tuple(
            OfFrozen(one) for one in (Compile(backend), ChannelsLast(), self._frozen_precision)
        )
        self._loader = LoaderLevers(redirects)
        # the loader last: only its change cannot be undone for free
        self._others: tuple[Family, ...] = (OptimizerForm(), self._loader)
        self._families: tuple[Family, ...] = (*self._computing, *self._of_frozen, *self._others)
        self._rehearsed: set[tuple[str, ...]] = set()
        self._trained: tuple[weakref.ref[Any], ...] = ()
        self._frozen_seen: tuple[weakref.ref[Any], ...] = ()
        self.update(found)

    def update(self, found: TrainingObjects) -> None:
        """Act on these objects from now on.

        If models or optimizers are new, put their levers back, because nothing is known of how the
        levers would affect the new objects.
        """
        objects = (*modules_of(found.roots), *found.optimizers)
        trained = tuple(weakref.ref(thing) for thing in objects)
        if self._trained and trained != self._trained:
            self._put({**self._defaults(), **self._loader.settings})
            self._rehearsed.clear()
        frozen = tuple(map(weakref.ref, modules_of(found.frozen)))
        if self._frozen_seen and frozen != self._frozen_seen:
            self._put({**self.settings, **self._defaults_of(self._of_frozen)})
        self._trained, self._frozen_seen = trained, frozen
        self._roots, self._frozen = found.roots, found.frozen
        self._refusal = _refusal(found)
        self._batch_size = batch_size(found.feed)
        for family in self._families:
            family.update(found)
        self._wrap()

    @property
    def offers(self) -> tuple[LeverOffer, ...]:
        """The offer of each lever, with the reason if it cannot be moved here."""
        offers = (offer for family in self._families for offer in family.offers)
        return (self._batch_size, *map(self._refused, offers))

    @property
    def settings(self) -> Settings:
        """The active values."""
        moved = {
            name: value for family in self._families for name, value in family.settings.items()
        }
        return {"batch_size": self._batch_size.default, **moved}

    @property
    def warmup_steps(self) -> int:
        """Steps after the newest change that must not be measured."""
        # batches that are there already hide the loader's rate
        return WARMUP_STEPS + self._loader.held

    @property
    def burst_steps(self) -> int:
        """How many batches arrive at a time: loader workers begin and finish together."""
        return max(1, self._loader.num_workers)

    def begins(self, *, in_blocks: bool, anew: bool) -> None:
        """See Levers."""
        self._loader.begins(in_blocks=in_blocks, anew=anew)

    def why_no_delay(self) -> str | None:
        """Return why a delay does not reach the loader; None if it does."""
        return self._loader.why_no_delay()

    def resolve(self, changes: Settings) -> Settings:
        """Return all settings after these changes. Raises Refusal."""
        settings = self.settings
        offers = {offer.name: offer for offer in self.offers}
        resolved = dict(settings)
        for name, text in changes.items():
            if name not in offers:
                raise Refusal(f"there is no lever {name!r} here; valid: {', '.join(offers)}")
            if text != settings[name]:
                resolved[name] = canonical(offers[name], text)
        latent = resolved["num_workers"] == "0" and "prefetch_factor" in changes
        unmoved = (settings["prefetch_factor"], offers["prefetch_factor"].default)
        if latent and resolved["prefetch_factor"] not in unmoved:
            raise Refusal("prefetch_factor: there are no loader workers (num_workers=0)")
        return resolved

    def needs_call(self, wanted: Settings) -> bool:
        """Return whether the settings must be rehearsed on the roots' newest training call."""
        computed = self._computed(wanted)
        known = {self._computed(self.settings), self._computed(self._defaults()), *self._rehearsed}
        return computed not in known and bool(modules_of(self._roots))

    def enter(self, wanted: Settings) -> None:
        """Make resolved settings active. Raises Refusal, and then changes nothing."""
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise Refusal("a CUDA graph is being captured")
        if self._refusal and wanted != self.settings:
            raise Refusal(self._refusal)
        before = self.settings
        rehearsal = self.needs_call(wanted)
        try:
            self._compute(wanted)
            if rehearsal:
                self._rehearse()
            for family in self._others:
                family.apply(wanted)
        except BaseException:
            self._put(before)
            raise
        finally:
            for root in (
                *self._roots,
                *self._frozen,
            ):  # the script decides how long its tensors live
                root.keeps_calls, root.newest = False, None
        if rehearsal:
            self._rehearsed.add(self._computed(wanted))
        self._wrap()

    def restore(self) -> None:
        """Put everything back as the script had it."""
        self._loader.begins(in_blocks=False, anew=False)
        self._put(self._defaults())

    def timings(self) -> tuple[Timing, ...]:
        """Time the roots' newest calls with each value of what computes; nothing is compiled."""
        before, found = self.settings, list[Timing]()
        usual = self._timed()
        for offer in self._precision.offers + self._channels_last.offers:
            values = () if offer.refusal or self._refusal else _values(offer)
            for value in values:
                if usual is None or value == before[offer.name]:
                    continue
                wanted = before | {offer.name: value}
                with suppress(Refusal):
                    self._compute(wanted)
                    self._rehearse()
                    found += self._timing(offer.name, value, usual)
                self._compute(before)
        return tuple(found)

    def _compute(self, wanted: Settings) -> None:
        for computing in (*self._computing, *self._of_frozen):
            computing.apply(wanted)

    def _timing(self, lever: str, value: str, usual: Took) -> Iterator[Timing]:
        after = self._timed()
        if after is not None:
            yield Timing(
                lever=lever,
                value=value,
                before_ms=usual.ms,
                after_ms=after.ms,
                spread=max(after.spread, usual.spread),
                before_host_ms=usual.host_ms,
                after_host_ms=after.host_ms,
            )

    def _timed(self) -> Took | None:
        """Return what the roots' newest calls take with what is applied; None if they fail."""
        around = self._around(self._computing) or _unchanged
        try:
            return timed(self._roots, around)
        except Refusal:
            return None

    def _put(self, settings: Settings) -> None:
        for family in self._families:
            family.apply(settings)
        self._wrap()

    def _wrap(self) -> None:
        for roots, families in (self._roots, self._computing), (self._frozen, self._of_frozen):
            around = self._around(families)
            for root in roots:
                root.around = around

    def _around(self, families: Iterable[Computing]) -> Callable[[Call], Call] | None:
        layers = [layer for family in families if (layer := family.around())]
        return functools.partial(_wrapped, layers) if layers else None

    def _rehearse(self) -> None:
        layers = (self._precision.probe, self._around(self._computing))
        of_frozen = (self._frozen_precision.probe, self._around(self._of_frozen))
        for roots, each in (self._roots, layers), (self._frozen, of_frozen):
            for root in roots:
                if root.module is not None:
                    for around in filter(None, each):
                        rehearse(root, around)

    def _computed(self, settings: Settings) -> tuple[str, ...]:
        families = (*self._computing, *self._of_frozen)
        return tuple(settings.get(name, "") for family in families for name in family.settings)

    def _defaults(self) -> Settings:
        return {offer.name: offer.default for offer in self.offers}

    def _defaults_of(self, families: Iterable[Family]) -> Settings:
        return {offer.name: offer.default for family in families for offer in family.offers}

    def _refused(self, offer: LeverOffer) -> LeverOffer:
        if not self._refusal:
            return offer
        return replace(offer, refusal=self._refusal, impossible=())


def _unchanged(call: Call) -> Call:
    return call


def _values(offer: LeverOffer) -> tuple[str, ...]:
    return ("off", "on") if offer.kind == "switch" else offer.choices


def _refusal(found: TrainingObjects) -> str | None:
    """Return why no lever at all may be moved; None: they may."""
    if found.graphs:
        return "the script replays its steps as CUDA graphs"
    return None


def _wrapped(layers: list[Callable[[Call], Call]], call: Call) -> Call:
    wrapped = call
    for layer in layers:
        wrapped = layer(wrapped)

    def unless_traced(*args: Any, **kwargs: Any) -> Any:
        return (call if _is_traced() else wrapped)(*args, **kwargs)

    return unless_traced


def _is_traced() -> bool:
    """Return whether `torch.jit` or `torch.func` is tracing or transforming the model."""
    if torch.compiler.is_dynamo_compiling():
        return False
    private = torch._C  # noqa: SLF001  # no public name
    tracing = private._get_tracing_state() is not None  # noqa: SLF001  # same
    return tracing or private._functorch.peek_interpreter_stack() is not None  # noqa: SLF001  # same
