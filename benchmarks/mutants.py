"""Small mutations of the pure modules: how many of them the tests notice, by mutmut.

What is mutated, and the tests that must notice, stand in pyproject's [tool.mutmut]. Of
mutmut's kinds only the small ones count: a swapped comparison, operator or sign, a constant
off by one; and two of our own, a truth turned around and a dropped return. Its other kinds (a
text in capitals, an argument left out) are many, and most of them end in a TypeError at once.
mutmut leaves properties and the constants of a module as they are.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import libcst
from mutmut.__main__ import cli, collect_source_file_mutation_data
from mutmut.mutation import mutators
from mutmut.stats import status_by_exit_code

LEAST_SHARE = 0.9
RESULTS = Path("mutants")
"""mutmut's copy of the repository. It keeps a verdict when only the tests change: removed first."""
NOTICED = ("killed", "timeout")


def turned_truth(node: libcst.Assign) -> Iterator[libcst.Assign]:
    """Yield the assignment of the other truth."""
    if isinstance(node.value, libcst.Name) and node.value.value in ("True", "False"):
        other = "False" if node.value.value == "True" else "True"
        yield node.with_changes(value=libcst.Name(other))


def dropped_return(node: libcst.Return) -> Iterator[libcst.Return]:
    """Yield the statement without its value."""
    if node.value is not None and not node.value.deep_equals(libcst.Name("None")):
        yield node.with_changes(value=libcst.Name("None"))


def main() -> None:
    """Mutate, test, print the share noticed of each module and of all; exit 1 if it is too low."""
    kinds = mutators.mutation_operators
    assert isinstance(kinds, list)  # one for all of mutmut, so it is changed in place
    kinds[:] = [
        (libcst.BaseNumber, mutators.operator_number),
        (libcst.Assign, turned_truth),
        (libcst.UnaryOperation, mutators.operator_remove_unary_ops),
        (libcst.CSTNode, mutators.operator_keywords),
        (libcst.CSTNode, mutators.operator_swap_op),
        (libcst.Return, dropped_return),
    ]
    shutil.rmtree(RESULTS, ignore_errors=True)
    cli(["run"], standalone_mode=False)
    made: Counter[str] = Counter()
    noticed: Counter[str] = Counter()
    for file, name, exit_code in collect_source_file_mutation_data(mutant_names=())[0]:
        module = str(file.path)
        made[module] += 1
        if status_by_exit_code[exit_code] in NOTICED:
            noticed[module] += 1
        else:
            print(f"not noticed: mutmut show {name}")
    for module in sorted(made):
        print(f"{module}: {noticed[module]} of {made[module]}")
    share = noticed.total() / made.total()
    print(f"noticed: {noticed.total()} of {made.total()} small mutations, {100 * share:.1f} %")
    if share < LEAST_SHARE:
        raise SystemExit(f"the tests are to notice {100 * LEAST_SHARE:.0f} %")


if __name__ == "__main__":
    main()
