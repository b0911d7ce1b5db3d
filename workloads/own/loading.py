"""Finding a workload by its name. This runs the user's code, so only training processes do it."""

import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.metadata import entry_points
from types import FunctionType, ModuleType
from typing import Any

from workloads import CATALOGUE, Entry
from workloads.levers import LeverError
from workloads.nearest import script_like, unknown
from workloads.own.declaration import MARK, Declaration, OwnEntry
from workloads.own.names import GROUP, defines_workload, installed, parts


def find(name: str) -> Entry:
    """Return the entry of any workload. Raises LeverError, with the line in the user's code."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    found = parts(name)
    if found is not None:
        return _of_file(name, *found)
    if name in installed():
        return _of_package(name)
    raise LeverError(unknown("workload", name, [*CATALOGUE, *installed()]))


def located(error: BaseException, file: str) -> str | None:
    """Return the error in one line with the line of `file` that raised it; None if none did.

    This also finds errors of loader workers, whose traceback is text.
    """
    trace = "".join(traceback.format_exception(error))
    path = re.escape(os.path.abspath(file))  # noqa: PTH100  # links are not resolved
    lines = re.findall(rf'File "{path}", line (\d+)', trace)
    return f"{file}:{lines[-1]}: {said(error)}" if lines else None


def failure(error: BaseException, workload: str) -> str:
    """Return an error of a training in one line, with the user's line or the workload's name."""
    file = parts(workload)
    return (file and located(error, file[0])) or f"{workload} failed: {said(error)}"


def said(error: BaseException) -> str:
    """Return an error's type and message in one line."""
    if isinstance(error, LeverError):
        return str(error)
    name = type(error).__name__
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    lines = [line for line in message.splitlines() if line.strip()]
    if not lines:
        return name
    # a loader worker's error arrives with its traceback, the message last
    return lines[-1] if "DataLoader worker" in lines[0] else f"{name}: {lines[0]}"


def _of_file(reference: str, file: str, name: str | None) -> OwnEntry:
    declared = _declared(_import(file, is_named=name is not None))
    names = [f"{file}:{one}" for one in declared]
    if name is not None and name not in declared:
        raise LeverError(unknown("workload", reference, names) if names else _none(file))
    if name is None and len(declared) > 1:
        raise LeverError(f"{file} has several workloads; valid: {', '.join(names)}")
    if not declared:
        raise LeverError(_none(file))
    declaration = declared[name] if name is not None else next(iter(declared.values()))
    return OwnEntry(reference, file, declaration)


def _none(file: str) -> str:
    return (
        f"{file} has no workload; put @workload(), from gpudash, above a function that returns "
        f"model, optimizer, data, loss{_plain(file)}"
    )


def _plain(file: str) -> str:
    """Return a hint for a script that declares no workload."""
    return f"; a plain script: gpudash run {file}, so too ab, why, tune, profile"


def _of_package(name: str) -> OwnEntry:
    (point, *_) = entry_points(group=GROUP, name=name)
    try:
        declaration = getattr(point.load(), MARK, None)
    except (Exception, SystemExit) as error:
        raise LeverError(f"workload {name}, {point.value}: {said(error)}") from error
    if not isinstance(declaration, Declaration):
        raise LeverError(f"workload {name}: {point.value} has no @workload() above it")
    return OwnEntry(name, point.value, declaration)


def _declared(module: ModuleType) -> dict[str, Declaration]:
    """Return the workloads in a module by name."""
    values = {k: v for k, v in vars(module).items() if isinstance(v, (FunctionType, type))}
    marks: dict[str, Any] = {name: vars(value).get(MARK) for name, value in values.items()}
    return {name: mark for name, mark in marks.items() if isinstance(mark, Declaration)}


def _import(file: str, *, is_named: bool) -> ModuleType:
    """Run a file like a script, but under its own module name. Raises LeverError.

    A script of the user's is not run: it might train for ever. A workload that `is_named` may come
    from another file.
    """
    path = os.path.abspath(file)  # noqa: PTH100  # links are kept, as in a script's __file__
    folder, base = os.path.split(path)
    module = ModuleType(f"gpudash_{base.removesuffix('.py')}")
    module.__file__ = path
    loader = SourceFileLoader(module.__name__, path)
    try:
        source = loader.get_data(path)
    except OSError as error:
        near = script_like(file) if isinstance(error, FileNotFoundError) else ""
        raise LeverError(f"{file}: {error.strerror}{near}") from error
    with _in_one_line(file, source):
        code = loader.source_to_code(source, path)
    if not is_named and not defines_workload(source):
        raise LeverError(_none(file))
    sys.modules[module.__name__] = module  # for dataclasses and pickle
    with _in_one_line(file, source), _first_on_path(folder):
        exec(code, vars(module))  # noqa: S102  # asked for
    return module


@contextmanager
def _in_one_line(file: str, source: bytes) -> Iterator[None]:
    """Raise LeverError, with the line of the file, for whatever the file raises."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # including SystemExit
        hint = "" if b"workload" in source else _plain(file)
        raise LeverError(f"{located(error, file) or f'{file}: {said(error)}'}{hint}") from error


@contextmanager
def _first_on_path(folder: str) -> Iterator[None]:
    """Put a folder first on the import path, as for a script; afterwards put it last."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:  # else the file has removed it itself
            sys.path.remove(folder)
        sys.path.append(folder)
