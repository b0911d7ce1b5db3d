"""The lines of PyTorch that do in one's own script what a lever does here.

A recipe is a script, `recipes/LEVER/VALUE.py`: its docstring says what to know, the rest is the
lines. What varies in them is `N`, a lever's number; `model` and the like are the reader's own.
They are read here, never imported, so importing this costs no torch; tests run what is shown.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from workloads.levers import Count, Lever

SCRIPTS = Path(__file__).parent / "recipes"
PLAIN = "plain"
"""A training loop without any technique."""
BEFORE = {
    "augment_on": "cpu",
    "input": "baseline",
    "loss": "nonzero",
    "rotation": "per_image",
}
"""The value whose script a lever's other ones change, where that is not the plain loop."""
SAME = {"fused_optimizer/fused": "fused_optimizer/on"}
"""A value that a lever has in a script of the user's, and the one here with its lines."""
OWN = "The lines are in the workload itself: this lever is of its own."
ANY = "any"
"""Stands for every value without a script of its own."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How one value of a lever is written in PyTorch."""

    note: str
    """What to know before it is copied: whether the losses change, what goes with it."""
    code: str
    """The script; empty where there is nothing to write, and `note` says why."""
    marked: tuple[str, ...]
    """The script's lines after `+`, `-` or a blank: added, removed, or as they were before."""
    before: str
    """What they are marked against, in words."""

    @property
    def legend(self) -> str:
        """What the marks and the names mean."""
        return f"Marked against {self.before}. Names that nothing defines are your own."


def recipe(lever: Lever, value: str | None = None) -> Recipe:
    """Return the recipe of a value in canonical form; of a number yet to be chosen, without one.

    A lever of a user's own has none.
    """
    if not (SCRIPTS / lever.name).is_dir():
        return Recipe(note=OWN, code="", marked=(), before="")
    note, code = _script(_name(lever.name, value or ANY))
    if isinstance(lever, Count) and value is not None:
        code = re.sub(r"\bN\b", value, code)
    name, words = PLAIN, "a plain training loop"
    if lever.name in BEFORE:
        name, words = f"{lever.name}/{BEFORE[lever.name]}", f"{lever.name}={BEFORE[lever.name]}"
    _, before = _script(name)
    return Recipe(note=note, code=code, marked=tuple(_marked(before, code)), before=words)


def recipes(lever: Lever) -> dict[str, Recipe]:
    """Return the recipe of each value, `N` standing for any number."""
    if not lever.values:
        return {"N": recipe(lever)}
    return {value: recipe(lever, value) for value in lever.values}


def _name(lever: str, value: str) -> str:
    """Return the first of the scripts that may hold it: its own, one for all, one for all levers.

    For all levers there are those of `off` and of `script`, which is as the user's script has it.
    """
    own = f"{lever}/{value}"
    names = (SAME.get(own, own), f"{lever}/{ANY}")
    return next((name for name in names if (SCRIPTS / f"{name}.py").exists()), value)


def _script(name: str) -> tuple[str, str]:
    """Return a script's docstring, on one line, and the code after it."""
    text = (SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    code = "\n".join(text.splitlines()[tree.body[0].end_lineno :]).strip()
    return " ".join((ast.get_docstring(tree) or "").split()), code and f"{code}\n"


def _marked(before: str, after: str) -> Iterator[str]:
    """Yield all lines of `after`, and among them those of `before` that it has not."""
    if not after or before == after:
        yield from (f" {line}" for line in after.splitlines())
        return
    lines, whole = before.splitlines(), len(before)
    changes = unified_diff(lines, after.splitlines(), n=whole, lineterm="")
    yield from list(changes)[3:]  # after two names and a place
