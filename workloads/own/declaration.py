"""The decorator that makes a function or a class a workload; its keywords are levers."""

import copy
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from workloads import Entry
from workloads.levers import AUTO, Choice, Count, Lever, LeverError, Switch, Value, text_of
from workloads.standard_levers import INPUT, OPTIMIZATIONS, SEED, batch_size, pipelined

if TYPE_CHECKING:
    from workloads.workload import Workload

TargetT = TypeVar("TargetT", bound=Callable[..., Any])
MARK = "gpudash_workload"
"""The attribute with the declaration."""
LARGEST = 2**31 - 1
PROTOCOL = ("configure", "samples", "refusal", "host_bytes", "prepare", "train")
RESERVED = ("instruments", "model_scale")
"""Names that a user's lever cannot have."""
STANDARD: tuple[Lever, ...] = (
    pipelined("Copy batch n+1 on one CUDA stream while n trains on another."),
    batch_size(32),
    *INPUT,
    *OPTIMIZATIONS,
    SEED,
)


@overload
def workload(target: TargetT, /) -> TargetT: ...
@overload
def workload(
    target: None = None, /, **levers: Value | tuple[Value, ...]
) -> Callable[[TargetT], TargetT]: ...
def workload(target: Any = None, /, **levers: Value | tuple[Value, ...]) -> Any:
    """Make a function or a class a workload that gpudash trains.

    The function takes `values`, every lever's value by name, and a `device`. It returns model,
    optimizer, data (a Dataset or a DataLoader) and `loss(model, batch)`. A class follows
    `workloads.workload.Workload`.

    Each keyword is a lever. A standard lever gets this default. Any other is the workload's own,
    and a change of it rebuilds the model: a bool is a switch, a whole number a count, a tuple a
    choice whose first value is the default. Raises LeverError.
    """

    def declare(target: TargetT) -> TargetT:
        if isinstance(target, type):
            missing = [name for name in PROTOCOL if not hasattr(target, name)]
            if missing:
                raise LeverError(
                    f"class {target.__name__} has no {', '.join(missing)}; "
                    "valid: a class that follows workloads.workload.Workload, or a function"
                )
        setattr(target, MARK, Declaration(target, _levers(levers)))
        return target

    return declare if target is None else declare(target)


class Declaration:
    """A decorated function or class, with its levers."""

    def __init__(self, target: Callable[..., Any], levers: tuple[Lever, ...]) -> None:
        self.target = target
        self.levers = levers


class OwnEntry(Entry):
    """The entry of a user's own workload, in the process that trains it."""

    def __init__(self, name: str, place: str, declaration: Declaration) -> None:
        levers = declaration.levers
        own = inspect.getdoc(declaration.target) if declaration.target.__doc__ else None
        super().__init__(
            name=name,
            summary=(own or f"A workload of your own, in {place}.").splitlines()[0],
            source=place,
            levers=levers,
            module="workloads.own.adapter",
            on_cpu=_on_cpu(levers),
        )
        self._target = declaration.target

    def build(self) -> "type[Workload]":
        """Return the class, or a class around the function, which imports torch."""
        if isinstance(self._target, type):
            return self._target
        adapted: type[Workload] = importlib.import_module(self.module).adapted(self._target)
        return adapted


class Options(Choice):
    """A choice among values of any type that a user has listed."""

    def __init__(self, *, options: tuple[Value, ...], **about: Any) -> None:
        self.options = {text_of(option): option for option in options}
        super().__init__(default=text_of(options[0]), choices=tuple(self.options), **about)

    def parse(self, text: str) -> Value:
        """See Lever."""
        super().parse(text)
        return self.options[text]


def _levers(declared: Mapping[str, Value | tuple[Value, ...]]) -> tuple[Lever, ...]:
    """Return all levers: the standard ones, with the user's own after the batch size."""
    names = [lever.name for lever in STANDARD]
    first, rest = STANDARD[:2], STANDARD[2:]
    own = (_own(name, default) for name, default in declared.items() if name not in names)
    return (
        *(_with_default(lever, declared) for lever in first),
        *own,
        *(_with_default(lever, declared) for lever in rest),
    )


def _with_default(lever: Lever, declared: Mapping[str, Any]) -> Lever:
    if lever.name not in declared:
        return lever
    other = copy.copy(lever)
    vars(other)["default"] = lever.parse(text_of(declared[lever.name]))
    return other


def _own(name: str, default: Value | tuple[Value, ...]) -> Lever:
    if name in RESERVED:
        raise LeverError(f"lever {name}: gpudash uses this name; choose another one")
    about: dict[str, Any] = {
        "name": name,
        "summary": "A lever of this workload's own; a change builds the model anew.",
        "source": "the workload itself",
        "effect": "rebuilt model",
    }
    match default:
        case bool():
            return Switch(default=default, **about)
        case int() if 0 <= default <= LARGEST:
            return Count(default=default, minimum=min(default, 1), maximum=LARGEST, **about)
        case tuple() if _can_be_options(default):
            return Options(options=default, **about)
    raise LeverError(
        f"lever {name}: {default!r} is not valid; valid: True or False, a whole number from 0, "
        "or a tuple of at least two different numbers or names, the default first"
    )


def _can_be_options(options: tuple[Any, ...]) -> bool:
    """Return whether all options can be typed, are distinct, and can be listed with commas."""
    if len(options) < 2 or not all(isinstance(one, (bool, int, float, str)) for one in options):
        return False
    texts = [text_of(one) for one in options]
    typed = all(text.isprintable() and text.strip() and not {",", ";"} & {*text} for text in texts)
    return typed and AUTO not in texts and len(set(texts)) == len(texts)


def _on_cpu(levers: tuple[Lever, ...]) -> dict[str, str]:
    """Return the defaults that differ on a CPU, which has no TF32."""
    return {
        lever.name: "fp32"
        for lever in levers
        if lever.name == "precision" and lever.default_text == "tf32"
    }
