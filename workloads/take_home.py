"""Recipes: the lines of PyTorch that do in the user's script what a lever does here.

A recipe is a script, `recipes/LEVER/VALUE.py`: its docstring is the note, the rest are the lines.
`N` in them stands for a lever's number; `model` and similar names are the reader's own. Recipes
are read here and never imported, so this module imports no torch. Tests run the recipes.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

SCRIPTS = Path(__file__).parent / "recipes"
PLAIN = "plain"
"""A training loop without any technique."""
BEFORE = {
    "augment_on": "cpu",
    "input": "baseline",
    "loss": "nonzero",
    "rotation": "per_image",
}
"""The value against whose script a lever's other scripts are marked, instead of the plain loop."""
SAME = {"fused_optimizer/fused": "fused_optimizer/on", "precision/cudnn_tf32": "off"}
"""A value of a user's script → the value here whose lines it shares."""
NO_LINES = "No lines are written for"
IN_THE_WORKLOAD = "those of a workload's own lever are in the workload itself"
ANY = "any"
"""Stands for every value without a script of its own."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The PyTorch script for one value of a lever."""

    note: str
    """What to know before copying: whether the losses change, and what else is needed."""
    code: str
    """The script; empty if there is nothing to write, and `note` says why."""
    marked: tuple[str, ...]
    """The script's lines after `+` (added), `-` (removed) or a blank (unchanged)."""
    before: str
    """The script that they are marked against, in words."""

    @property
    def legend(self) -> str:
        """Explanation of the marks and of the names."""
        return f"Marked against {self.before}. Names that nothing defines are your own."


def recipe(lever: str, value: str | None = None) -> Recipe:
    """Return the recipe of a canonical value; without a value, with `N` for the number.

    Without a script for the lever or the value, the note says so, and there is no code.
    """
    if not (SCRIPTS / lever).is_dir():
        return _unwritten(f"{NO_LINES} {lever}; {IN_THE_WORKLOAD}.")
    script = _name(lever, value or ANY)
    if not _path(script).exists():
        return _unwritten(f"{NO_LINES} {lever}={value}.")
    note, code = _script(script)
    if value is not None and value.isdecimal():
        code = re.sub(r"\bN\b", value, code)
    name, words = PLAIN, "a plain training loop"
    if lever in BEFORE:
        name, words = f"{lever}/{BEFORE[lever]}", f"{lever}={BEFORE[lever]}"
    _, before = _script(name)
    return Recipe(note=note, code=code, marked=tuple(_marked(before, code)), before=words)


def recipes(lever: str, values: Iterable[str]) -> dict[str, Recipe]:
    """Return the recipe of each value; of a number, which has none, `N` standing for any."""
    return {value: recipe(lever, value) for value in values} or {"N": recipe(lever)}


def _unwritten(note: str) -> Recipe:
    return Recipe(note=note, code="", marked=(), before="")


def _path(script: str) -> Path:
    return SCRIPTS / f"{script}.py"


def _name(lever: str, value: str) -> str:
    """Return the name of a value's script: its own, the lever's for any value, or a shared one.

    The shared ones are those of `off`, and of `script`: as the user's script has it.
    """
    own = f"{lever}/{value}"
    names = (SAME.get(own, own), f"{lever}/{ANY}")
    return next((name for name in names if _path(name).exists()), value)


def _script(name: str) -> tuple[str, str]:
    """Return a script's docstring, on one line, and the code after it."""
    text = _path(name).read_text(encoding="utf-8")
    tree = ast.parse(text)
    code = "\n".join(text.splitlines()[tree.body[0].end_lineno :]).strip()
    return " ".join((ast.get_docstring(tree) or "").split()), code and f"{code}\n"


def _marked(before: str, after: str) -> Iterator[str]:
    """Yield the lines of `after`, and among them the removed lines of `before`, with marks."""
    if not after or before == after:
        yield from (f" {line}" for line in after.splitlines())
        return
    lines, whole = before.splitlines(), len(before)
    changes = unified_diff(lines, after.splitlines(), n=whole, lineterm="")
    yield from list(changes)[3:]  # after the diff's header
