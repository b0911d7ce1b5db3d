"""Finds the models of a training, and hooks their calls.

A root is a top-level module that holds a parameter of an optimizer that has stepped. The hook is
the instance attribute `_compiled_call_impl`: `nn.Module.__call__` looks it up first, and pickle and
deepcopy drop it. The attribute is private, and a test fails if it goes.
"""

import gc
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from sys import _getframe as getframe
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from ..instrument.guard import without_ours
from ..instrument.weights import updated_by
from ..levers.training_objects import Call, Root, alive, shards_of
from .hooked_methods import Tell, imported_optimizers

CALL_ATTRIBUTE = "_compiled_call_impl"
FULLY_SHARD = "torch.distributed.fsdp._fully_shard._fully_shard"
DEPTH = 2
"""Levels below a root's children at which submodules are hooked."""
MOST_LISTENED = 64
MOST_PARTS = 8
"""If more submodules are called without their root, the root itself stays."""


_made: Any = WeakIdKeyDictionary()
"""The modules and optimizers of this process, PyTorch's and those of a library's own."""


def note_made(thing: nn.Module | Optimizer) -> None:
    """Note what is being made: its `__init__` may still run."""
    _made[thing] = None


def look_at_all() -> None:
    """Note what was made unseen. It takes 0.1 to 0.4 s: each object of the process is looked at."""
    wanted = nn.Module, Optimizer, *imported_optimizers()
    for one in gc.get_objects():
        if issubclass(type(one), wanted):  # `isinstance` would make proxies load
            _made[one] = None


class Survey:
    """The modules and optimizers that are known of now."""

    def __init__(self) -> None:
        there = alive(_made.keyrefs())
        modules = [one for one in there if isinstance(one, nn.Module) and "_modules" in vars(one)]
        self._optimizers = [one for one in there if not isinstance(one, nn.Module)]
        children = {id(child) for one in modules for child in vars(one)["_modules"].values()}
        self._tops = [one for one in modules if id(one) not in children]

    def has_optimizer_to_come(self) -> bool:
        """Return whether an optimizer has gradients that it has not used yet."""
        return any(
            one.grad is not None for optimizer in self._optimizers for one in updated_by(optimizer)
        )

    def with_gradients(self) -> list[nn.Module]:
        return [
            one
            for one in self._tops
            if any(parameter.grad is not None for parameter in _trained(one))
        ]

    def roots(self, parameters: set[int]) -> list[nn.Module]:
        return [one for one in self._tops if not parameters.isdisjoint(parameters_of(one))]

    def frozen(self, trained: list[nn.Module]) -> list[nn.Module]:
        """Leave out `trained`, the modules that train without an optimizer."""
        updated = {id(one) for optimizer in self._optimizers for one in updated_by(optimizer)}
        held = ((one, parameters_of(one)) for one in self._tops if one not in trained)
        return [one for one, parameters in held if parameters and parameters.isdisjoint(updated)]

    def beside(self, parameters: set[int]) -> list[int]:
        """Return the ids of the optimizers of other parameters than these."""
        beside, known = [], set(parameters)
        for other in self._optimizers:
            held = parameters_of(other)
            if known.isdisjoint(held):  # else one wraps the other
                beside.append(id(other))
                known |= held
        return beside


def parameters_of(owner: Any) -> set[int]:
    """Return the parameters' ids, by `nn.Module.parameters`: a subclass may override that."""
    held = _trained(owner) if isinstance(owner, nn.Module) else updated_by(owner)
    return {id(one) for one in held}


def _trained(module: nn.Module) -> Iterator[Tensor]:
    """Yield also the shards: while fully_shard has gathered a module, only its state has them."""
    yield from nn.Module.parameters(module)
    if FULLY_SHARD not in sys.modules:
        return
    for part in nn.Module.modules(module):
        yield from (one.sharded_param for one in shards_of(part))


class _RootCall:
    """The hook in a root's `_compiled_call_impl`. A pickle or a copy of it is None."""

    __slots__ = ("_module", "_tell", "compiled", "root")

    def __init__(self, root: Root, tell: Tell, compiled: Call | None) -> None:
        self.root = root
        self._module = root.module_ref
        self._tell = tell
        self.compiled = compiled  # what the script's own `compile()` had put here

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module: Any = self._module()
        if is_dynamo_compiling():
            return (self.compiled or module._call_impl)(*args, **kwargs)  # noqa: SLF001  # as `nn.Module.__call__` has it
        noted: bool | None = False
        try:
            # `nn.DataParallel` calls shallow copies, which have this attribute too
            caller = getframe(1).f_locals.get("self")
            if caller is not module and isinstance(caller, nn.Module):
                return (self.compiled or caller._call_impl)(*args, **kwargs)  # noqa: SLF001  # same
            root = self.root
            noted = self._tell("forward: begins", root, module, args, kwargs)
            call, around = self.compiled or module._call_impl, root.around  # noqa: SLF001  # same
            trains = root.is_frozen or (module.training and torch.is_grad_enabled())
            if around is not None and trains:
                call = around(call)  # made for each call: a stored one would keep the module alive
            return call(*args, **kwargs)
        except BaseException as error:
            without_ours(error)
            raise
        finally:
            if noted:
                self._tell("forward: ends")

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def install_hook(root: Root, tell: Tell) -> None:
    """Install the hook on the root's calls, also after the script's own `compile()`."""
    module = root.module
    if module is None:
        return
    here = module.__dict__.get(CALL_ATTRIBUTE)
    if type(here) is _RootCall:
        if here.root is root:
            return
        here = here.compiled  # inherited from the parent of this fork
    root.compiled = here is not None
    module.__dict__[CALL_ATTRIBUTE] = _RootCall(root, tell, here)


def remove_hook(root: Root) -> None:
    module = root.module
    here = None if module is None else module.__dict__.get(CALL_ATTRIBUTE)
    if module is None or type(here) is not _RootCall:
        return
    if here.compiled is None:
        del module.__dict__[CALL_ATTRIBUTE]
    else:
        module.__dict__[CALL_ATTRIBUTE] = here.compiled


class Parts:
    """Submodules, hooked for a while, of roots that the script does not call itself."""

    def __init__(self, owners: Iterable[Root], tell: Tell) -> None:
        self._parts = {owner: _parts(owner) for owner in owners}
        for root in chain.from_iterable(self._parts.values()):
            install_hook(root, tell)

    def replace(self, roots: Iterable[Root]) -> list[Root]:
        """Return the roots, uncalled ones replaced by their called submodules; unhook the rest."""
        kept = [one for root in roots for one in self._called_for(root) or [root]]
        for owner, parts in self._parts.items():
            for root in {owner, *parts}.difference(kept):
                remove_hook(root)
        return kept

    def unhook(self) -> None:
        for root in chain.from_iterable(self._parts.values()):
            remove_hook(root)

    def _called_for(self, owner: Root) -> list[Root]:
        called: list[Root] = []
        for part in () if owner.was_called else self._parts.get(owner, ()):  # owners first
            if part.was_called and not any(part.name.startswith(f"{one.name}.") for one in called):
                called.append(part)
        return called if len(called) <= MOST_PARTS else []


def _parts(owner: Root) -> list[Root]:
    module, only_compiled = owner.module, has_compiled()
    if module is None or owner.compiled or is_compiled(module):
        return []
    within = (
        Root(one, f"{owner.name}.{path}", is_frozen=owner.is_frozen)
        for path, one in _within(module)
        if (is_compiled(one) or not only_compiled)
        and type(one.__dict__.get(CALL_ATTRIBUTE)) is not _RootCall
        and next(nn.Module.parameters(one), None) is not None
    )
    return list(islice(within, MOST_LISTENED))


def _within(module: nn.Module, above: str = "") -> Iterator[tuple[str, nn.Module]]:
    children = [(f"{above}{name}", one) for name, one in module.named_children()]
    yield from children
    for path, one in children:
        if path.count(".") < DEPTH and not is_compiled(one):
            yield from _within(one, f"{path}.")


def is_compiled(module: nn.Module) -> bool:
    here = module.__dict__.get(CALL_ATTRIBUTE)
    return hasattr(module, "_orig_mod") or (here is not None and type(here) is not _RootCall)


def has_compiled() -> bool:
    """Return whether anything was compiled: changing a module may make torch compile it again."""
    utils = sys.modules.get("torch._dynamo.utils")
    return utils is not None and utils.counters["frames"]["total"] > 0


def device_of(
    modules: Iterable[nn.Module], optimizers: Iterable[Optimizer], loss: Tensor | None
) -> torch.device:
    """Return the device of the parameters or the loss, a GPU before the CPU."""
    tensors = chain(
        (one for module in modules for one in nn.Module.parameters(module)),
        (one for optimizer in optimizers for one in updated_by(optimizer)),
        () if loss is None else (loss,),
    )
    devices = dict.fromkeys(one.device for one in tensors if not one.is_meta)
    cpu = torch.device("cpu")
    return next((one for one in devices if one.type != "cpu"), cpu)
