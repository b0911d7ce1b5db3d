"""`gpudash show`: print the lines of PyTorch that do the same as a lever."""

import argparse
from pathlib import Path

from gpudash.cli.options import add_json
from gpudash.cli.parser import Parser, Verb
from gpudash.cli.stdout import say, say_json
from gpudash.errors import Exit, UsageError


def add_arguments(parser: Parser) -> None:
    parser.add_argument("what", metavar="LEVER[=VALUE]", help="a lever, or one of its values")
    parser.add_argument(
        "--workload", metavar="WORKLOAD", help="whose lever is meant; any by default"
    )
    parser.add_argument(
        "--patch", metavar="SCRIPT", help="write the value into this script's own line: a diff"
    )
    add_json(parser)


VERB = Verb(
    name="show",
    add_arguments=add_arguments,
    examples=(
        ("gpudash show precision=bf16", "how to train in bf16"),
        ("gpudash show pipelined=on", "how to prepare the next batch on a stream of its own"),
        ("gpudash show num_workers=8 --patch train.py | patch -p1", "and it stands there"),
    ),
)


def main(arguments: argparse.Namespace) -> int:
    from gpudash.cli.catalogue import look_up, recipe_lines

    if arguments.patch is not None:
        say(_patch(arguments.what, arguments.patch))
        return Exit.DONE
    shown = look_up(arguments.what, arguments.workload)
    if arguments.json:
        say_json(shown)
    else:
        say("\n".join(recipe_lines(shown)))
    return Exit.DONE


def _patch(what: str, script: str) -> str:
    from gpudash.present.own_line import LOADER, own_patch

    if not Path(script).is_file():
        raise UsageError(f"--patch {script}: there is no such file")
    lever, _, value = what.partition("=")
    patch = own_patch(script, lever, value)
    if patch is None:
        levers = ", ".join((*LOADER, "fused_optimizer"))
        raise UsageError(f"--patch {script}: {what} has no single line there; {levers} may have")
    return patch.rstrip("\n")
