"""All families of levers as one: settings are resolved, rehearsed and entered together."""

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import torch

from ..protocol.inspections import Timing
from ..protocol.records import Settings, replace
from ..protocol.training import Lever
from ..training.commanded import Refusal
from .affinity import Affinity
from .channels_last import ChannelsLast
from .compile import Backend, Compile
from .frozen import FrozenLevers
from .grad_sync import GradSync
from .handover import Redirects
from .loader import LoaderLevers, batch_size
from .offers import Computing, Family, canonical
from .optimizer import OptimizerForm
from .precision import Precision
from .process import ProcessLevers
from .rehearsal import Took, rehearse, timed
from .training_objects import Call, Root, TrainingObjects, modules_of

WARMUP_STEPS = 2
"""The allocator needs these to find its blocks."""


class _Models(NamedTuple):
    """Models, and the families that act on their calls alone."""

    roots: tuple[Root, ...]
    compile: Computing
    """The innermost around a call. It takes too long to be timed."""
    others: tuple[Computing, ...]
    precision: Precision
    """Is among the others."""

    @property
    def families(self) -> tuple[Computing, ...]:
        return (self.compile, *self.others)

    @property
    def around(self) -> Callable[[Call], Call] | None:
        layers = [layer for family in self.families if (layer := family.around())]
        return functools.partial(_wrapped, layers) if layers else None

    def rehearse(self) -> None:
        for root in self.roots:
            if root.module is not None and self.precision.sharded is None:
                for around in filter(None, (self.precision.probe, self.around)):
                    rehearse(root, around)


class ScriptLevers:
    """The levers of a user's script. Use them on the thread that trains, between two steps."""

    def __init__(
        self, found: TrainingObjects, redirects: Redirects, *, backend: Backend = "inductor"
    ) -> None:
        precision, of_frozen = Precision(), Precision()
        self._trained = _Models((), Compile(backend), (ChannelsLast(), precision), precision)
        others = FrozenLevers(ChannelsLast()), FrozenLevers(of_frozen)
        self._frozen = _Models((), FrozenLevers(Compile(backend)), others, of_frozen)
        self._computing = (*self._trained.families, *self._frozen.families)
        self._loader = LoaderLevers(redirects)
        # the loader last: only its change cannot be undone for free
        self._others: tuple[Family, ...] = (
            ProcessLevers(),
            Affinity(),
            OptimizerForm(),
            self._loader,
        )
        self._alone: tuple[Family, ...] = (*self._computing, *self._others)
        self._grad_sync = GradSync()
        self._families: tuple[Family, ...] = (*self._alone, self._grad_sync)
        self._rehearsed: set[tuple[str, ...]] = set()
        self._trained_seen: tuple[weakref.ref[Any], ...] = ()
        self._frozen_seen: tuple[weakref.ref[Any], ...] = ()
        self.update(found)

    def update(self, found: TrainingObjects) -> None:
        """Put the levers back if models or optimizers are new: their effect there is not known."""
        objects = (*modules_of(found.roots), *found.optimizers)
        trained = tuple(weakref.ref(thing) for thing in objects)
        if self._trained_seen and trained != self._trained_seen:
            self._put({**self._defaults(), **self._loader.settings})
            self._rehearsed.clear()
        frozen = tuple(map(weakref.ref, modules_of(found.frozen)))
        if self._frozen_seen and frozen != self._frozen_seen:
            self._put({**self.settings, **self._defaults_of(self._frozen.families)})
        self._trained_seen, self._frozen_seen = trained, frozen
        self._trained = self._trained._replace(roots=found.roots)
        self._frozen = self._frozen._replace(roots=found.frozen)
        self._refusal = _refusal(found)
        self._batch_size = batch_size(found.feed)
        for family in self._families:
            family.update(found)
        self._wrap()

    @property
    def offers(self) -> tuple[Lever, ...]:
        offers = (offer for family in self._families for offer in family.offers)
        return (self._batch_size, *map(self._refused, offers))

    @property
    def settings(self) -> Settings:
        moved = {
            name: value for family in self._families for name, value in family.settings.items()
        }
        return {"batch_size": self._batch_size.default, **moved}

    @property
    def warmup_steps(self) -> int:
        # batches that are there already hide the loader's rate
        return WARMUP_STEPS + self._loader.held

    @property
    def burst_steps(self) -> int:
        """So many batches arrive at a time: loader workers begin and finish together."""
        return max(1, self._loader.num_workers)

    def begins(self, *, in_blocks: bool, anew: bool) -> None:
        self._loader.begins(in_blocks=in_blocks, anew=anew)

    def why_no_delay(self) -> str | None:
        return self._loader.why_no_delay()

    def resolve(self, changes: Settings) -> Settings:
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
        computed = self._computed(wanted)
        known = {self._computed(self.settings), self._computed(self._defaults()), *self._rehearsed}
        return computed not in known and bool(modules_of(self._trained.roots))

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
                for models in self._models:
                    models.rehearse()
            for family in self._others:
                family.apply(wanted)
            self._grad_sync.apply(wanted)
        except BaseException:
            self._put(before)
            raise
        finally:
            for models in self._models:
                for root in models.roots:  # the script decides how long its tensors live
                    root.keeps_calls, root.newest = False, None
        if rehearsal:
            self._rehearsed.add(self._computed(wanted))
        self._wrap()

    def restore(self) -> None:
        self._loader.begins(in_blocks=False, anew=False)
        self._put(self._defaults())

    def timings(self) -> tuple[Timing, ...]:
        before, usual, found = self.settings, dict[bool, Took](), list[Timing]()
        for has_gradients in (True, False):
            with suppress(Refusal):
                usual[has_gradients] = self._timed(has_gradients=has_gradients)
        for models in self._models:
            for offer in (offer for family in models.others for offer in family.offers):
                for value in () if offer.refusal or self._refusal else offer.values:
                    if value == before[offer.name]:
                        continue
                    try:
                        with suppress(Refusal):
                            found += tuple(self._timings(offer.name, value, models, usual))
                    finally:  # also if the script's signal handler raises in its model
                        self._compute(before)
        return tuple(found)

    def _timings(
        self, lever: str, value: str, models: _Models, usual: Mapping[bool, Took]
    ) -> Iterator[Timing]:
        was_for_all = self._trained.precision.is_for_all
        self._compute(self.settings | {lever: value})
        is_for_all = self._trained.precision.is_for_all
        reached = self._models if is_for_all != was_for_all else (models,)
        for one in reached:
            one.rehearse()
        calls = (root.newest for one in reached for root in one.roots)
        kinds = {call.has_gradients for call in calls if call is not None}
        for has_gradients in kinds & usual.keys():
            before, after = usual[has_gradients], self._timed(has_gradients=has_gradients)
            yield Timing(
                lever=lever,
                value=value,
                is_frozen=not has_gradients,
                before_ms=before.ms,
                after_ms=after.ms,
                spread=max(after.spread, before.spread),
                before_host_ms=before.host_ms,
                after_host_ms=after.host_ms,
            )

    def _timed(self, *, has_gradients: bool) -> Took:
        calls = [
            (root, models.around or _unchanged)
            for models in self._models
            for root in models.roots
            if root.module is not None
            and root.newest is not None
            and root.newest.has_gradients == has_gradients
        ]
        if not calls:
            raise Refusal("the model was not called in the newest step")
        return timed(calls)

    def _compute(self, wanted: Settings) -> None:
        for computing in self._computing:
            computing.apply(wanted)

    @property
    def _models(self) -> tuple[_Models, _Models]:
        return self._trained, self._frozen

    def _put(self, settings: Settings) -> None:
        """Leave what all ranks have to move together."""
        for family in self._alone:
            family.apply(settings)
        self._wrap()

    def _wrap(self) -> None:
        for models in self._models:
            around = models.around
            for root in models.roots:
                root.around = around

    def _computed(self, settings: Settings) -> tuple[str, ...]:
        names = (name for family in self._computing for name in family.settings)
        return tuple(settings.get(name, "") for name in names)

    def _defaults(self) -> Settings:
        return {offer.name: offer.default for offer in self.offers}

    def _defaults_of(self, families: Iterable[Family]) -> Settings:
        return {offer.name: offer.default for family in families for offer in family.offers}

    def _refused(self, offer: Lever) -> Lever:
        if not self._refusal:
            return offer
        return replace(offer, refusal=self._refusal, impossible=())


def _unchanged(call: Call) -> Call:
    return call


def _refusal(found: TrainingObjects) -> str | None:
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
    if torch.compiler.is_dynamo_compiling():
        return False
    private = torch._C  # noqa: SLF001  # no public name
    tracing = private._get_tracing_state() is not None  # noqa: SLF001  # same
    return tracing or private._functorch.peek_interpreter_stack() is not None  # noqa: SLF001  # same
