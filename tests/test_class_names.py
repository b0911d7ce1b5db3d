"""A class name means one thing, wherever it is read."""

import ast
from collections import defaultdict
from pathlib import Path

import gpudash

PACKAGE = Path(gpudash.__file__).parent
SAME_IDEA = {
    "GpudashCallback",  # what a user imports, from the module of their framework
}


def test_each_class_name_is_defined_once() -> None:
    modules = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(str(path.relative_to(PACKAGE)))
    several = {name: paths for name, paths in modules.items() if len(paths) > 1}
    assert several.keys() >= SAME_IDEA
    assert {name: paths for name, paths in several.items() if name not in SAME_IDEA} == {}
