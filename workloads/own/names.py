"""The names of workloads outside of the catalogue: `FILE.py[:NAME]`, or an entry point's.

Nothing here imports a workload.
"""

import os
import re

HAVE_IT = ("gpudash", "workloads.own", "workloads.own.declaration")
"""The modules that have `workload`."""
GROUP = "gpudash.workloads"
"""The group of entry points for the workloads of installed packages."""


def is_file(name: str) -> bool:
    """Return whether the name is `FILE.py` or `FILE.py:NAME`."""
    return parts(name) is not None


def parts(name: str) -> tuple[str, str | None] | None:
    """Return FILE.py and NAME; None if the name is not that of a file."""
    found = re.fullmatch(r"(.+?\.py)(?::(.*))?", name) if name.isprintable() else None
    return (found[1], found[2]) if found else None


def defines_workload(text: bytes) -> bool:
    """Return whether the text of a Python file names gpudash's `workload`. Nothing in it is run.

    A text that this Python cannot parse defines none for it.
    """
    if b"workload" not in text:
        return False
    import ast  # noqa: PLC0415  # slow, and seldom needed
    import warnings  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python tells them where the file is run
        try:
            nodes = [*ast.walk(ast.parse(text))]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    attributes = {node for node in nodes if isinstance(node, ast.Attribute)}
    named = {ast.unparse(one.value) for one in attributes if one.attr == "workload"}
    for node in nodes:
        found: set[str] = set()
        if isinstance(node, ast.ImportFrom) and node.module in HAVE_IT:
            found = {"workload", "*"} & {one.name for one in node.names}
        elif isinstance(node, ast.Import):
            found = named & {one.asname or one.name for one in node.names if one.name in HAVE_IT}
        if found:
            return True
    return False


def names_a_script(name: str) -> bool:
    """Return whether the name is that of a Python script: of a file that defines no workload."""
    if not name.endswith(".py"):
        return False
    try:
        if not os.path.isfile(name):  # noqa: PTH113  # importing pathlib is slow
            return True
        with open(name, "rb") as file:  # noqa: PTH123  # …
            return not defines_workload(file.read())
    except (OSError, ValueError):
        return True


def installed() -> dict[str, str]:
    """Return the workloads of installed packages: name → `package.module:attribute`."""
    from importlib.metadata import entry_points  # noqa: PLC0415  # slow, and seldom needed

    return {one.name: one.value for one in entry_points(group=GROUP)}
