"""`gpudash show`: print the lines of PyTorch that do the same as a lever."""

import argparse
from pathlib import Path

from gpudash.cli.catalogue import look_up, recipe_lines
from gpudash.cli.stdout import say, say_found
from gpudash.errors import UsageError
from gpudash.present.own_line import LOADER, own_patch


def main(arguments: argparse.Namespace) -> None:
    if arguments.patch is not None:
        say(_patch(arguments.what, arguments.patch))
        return
    shown = look_up(arguments.what, arguments.workload)
    say_found(shown, "\n".join(recipe_lines(shown)), as_json=arguments.json)


def _patch(what: str, script: str) -> str:
    if not Path(script).is_file():
        raise UsageError(f"--patch {script}: there is no such file")
    lever, _, value = what.partition("=")
    patch = own_patch(script, lever, value)
    if patch is None:
        levers = ", ".join((*LOADER, "fused_optimizer"))
        raise UsageError(f"--patch {script}: {what} has no single line there; {levers} may have")
    return patch.rstrip("\n")
