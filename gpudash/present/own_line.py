"""The line of the user's own script at which an object was made, with a lever's value on it.

The files are parsed once somebody asks: noting the line in the training would cost time there,
and need another patch of torch. So a line is known only where a single one can be meant.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

from gpudash import format as fmt
from gpudash.input_file import read_text
from gpudash.run.user_command import LAUNCHERS

LOADER = ("num_workers", "prefetch_factor", "pin_memory")
OPTIMIZER = {"fused": "fused=True", "foreach": "foreach=True", "single": "foreach=False"}
"""Value of `fused_optimizer` → the argument."""
FUSED = {"SGD", "Adam", "AdamW", "Adagrad"}
"""Optimizers that take the argument."""
NO_NEWLINE = "\n\\ No newline at end of file\n"
MOST_FILES, MOST_BYTES = 50, 1_000_000
MOST_POSITIONAL = 5
"""With more arguments without a name, the lever's own may be among them."""


class OwnLine(NamedTuple):
    """A line, as it is and as it would be."""

    where: str
    """`train.py:30`."""
    before: str
    after: str


def unknown(*_: str) -> OwnLine | None:
    """Stand in for `own_line` where there is no script."""
    return None


def own_line(command: Sequence[str], found: str, lever: str, value: str) -> OwnLine | None:
    """`found` is what was found in the training: it begins with the types of the optimizers."""
    edit = _edit(command, set(re.findall(r"\w+", found.partition(",")[0])), lever, value)
    if edit is None:
        return None
    before, after = (fmt.plain(_as_one(text.strip())) for text in (edit.before, edit.after))
    return OwnLine(f"{edit.path.name}:{edit.line}", before, after)


def own_patch(script: str, lever: str, value: str) -> str | None:
    """Return the same as a unified diff, of a script of which nothing else is known."""
    edit = _edit((script,), FUSED, lever, value)
    if edit is None:
        return None
    begin, lines = edit.line - 1, edit.text.splitlines(keepends=True)
    count = len(edit.before.splitlines())
    ends = edit.text.endswith("\n") or begin + count < len(lines)
    after = f"{edit.after}{chr(10) * ends}".splitlines(keepends=True)
    changed = [*lines[:begin], *after, *lines[begin + count :]]
    name = edit.path.as_posix()
    diff = unified_diff(lines, changed, f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}{NO_NEWLINE}" for line in diff)


class _Edit(NamedTuple):
    path: Path
    text: str
    """Of the whole file."""
    line: int
    """The first that changes, from 1."""
    before: str
    after: str


def _edit(command: Sequence[str], optimizers: set[str], lever: str, value: str) -> _Edit | None:
    if lever in LOADER and (value.isdecimal() or value in ("on", "off")):
        kinds = {"DataLoader"}
        argument = f"{lever}={value if value.isdecimal() else value == 'on'}"
    elif lever == "fused_optimizer" and value in OPTIMIZER:
        kinds, argument = optimizers, OPTIMIZER[value]
    else:
        return None
    calls = [
        (path, text, call) for path, text, tree in _files(command) for call in _of(tree, kinds)
    ]
    if len(calls) != 1:
        return None
    ((path, text, call),) = calls
    changed = _with(text, call, argument)
    return changed and _Edit(path, text, call.lineno, *changed)


def _files(command: Sequence[str]) -> Iterator[tuple[Path, str, ast.Module]]:
    """Yield the script, and the modules beside it that it imports."""
    waiting, seen = [path] if (path := _script(command)) is not None else [], set[Path]()
    folder = waiting[0].parent if waiting else Path()
    while waiting and len(seen) < MOST_FILES:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            text = read_text(path, MOST_BYTES)
            tree = ast.parse(text)
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        yield path, text, tree
        for name in _imported(tree):
            beside = path.parent if name.startswith(".") else folder
            place = beside / (name.strip(".").replace(".", "/") or "__init__")
            waiting += [place.with_suffix(".py"), place / "__init__.py"]


def _script(command: Sequence[str]) -> Path | None:
    for word, following in zip(command, (*command[1:], ""), strict=False):
        if word.endswith(".py"):
            return Path(word)
        if word == "-m" and following and not following.startswith(LAUNCHERS):
            place = Path(following.replace(".", "/"))
            return place / "__main__.py" if place.is_dir() else place.with_suffix(".py")
    return None


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield module
            yield from (f"{module}.{one.name}" for one in node.names)


def _of(tree: ast.Module, kinds: set[str]) -> Iterator[ast.Call]:
    """Yield the calls of these classes, also by another name that they were imported under."""
    named = {
        one.asname: one.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for one in node.names
        if one.asname
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if named.get(name, name) in kinds:
                yield node
            case ast.Call(func=ast.Attribute(attr=name)) if name in kinds:
                yield node


def _with(text: str, call: ast.Call, argument: str) -> tuple[str, str] | None:
    """Return the call's lines without and with the argument; None if it may fail."""
    name = argument.partition("=")[0]
    given = next((one for one in call.keywords if one.arg == name), None)
    hidden = any(one.arg is None for one in call.keywords) or len(call.args) > MOST_POSITIONAL
    if given is None and (hidden or any(isinstance(one, ast.Starred) for one in call.args)):
        return None
    assert call.end_lineno is not None, "it was parsed from a text"
    lines = [line.encode() for line in text.splitlines()[call.lineno - 1 : call.end_lineno]]
    if len(lines) > 1 and any(b"#" in line for line in lines):
        return None
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines))]

    def at(line: int | None, column: int | None) -> int:
        return starts[(line or 0) - call.lineno] + (column or 0)

    whole = b"\n".join(lines)
    if given is not None:
        begin = at(given.lineno, given.col_offset)
        end = at(given.end_lineno, given.end_col_offset)
        after = whole[:begin] + argument.encode() + whole[end:]
    else:
        end = at(call.end_lineno, call.end_col_offset) - 1
        inside = whole[:end].rstrip().removesuffix(b",")
        comma = b", " * bool(call.args or call.keywords)
        after = inside + comma + argument.encode() + whole[end:]
    return whole.decode(), after.decode()


def _as_one(lines: str) -> str:
    text = re.sub(r"\s*\n\s*", " ", lines)
    return re.sub(r",? \)", ")", text.replace("( ", "(")) if "\n" in lines else text
