"""`gpudash show`: print the lines of PyTorch that do the same as a lever."""

import argparse

from gpudash.cli.options import add_json
from gpudash.cli.parser import Parser, Verb
from gpudash.cli.stdout import say, say_json
from gpudash.errors import Exit


def add_arguments(parser: Parser) -> None:
    parser.add_argument("what", metavar="LEVER[=VALUE]", help="a lever, or one of its values")
    parser.add_argument(
        "--workload", metavar="WORKLOAD", help="whose lever is meant; any by default"
    )
    add_json(parser)


VERB = Verb(
    name="show",
    add_arguments=add_arguments,
    examples=(
        ("gpudash show precision=bf16", "how to train in bf16"),
        ("gpudash show pipelined=on", "how to prepare the next batch on a stream of its own"),
    ),
)


def main(arguments: argparse.Namespace) -> int:
    from gpudash.cli.catalogue import look_up, recipe_lines

    shown = look_up(arguments.what, arguments.workload)
    if arguments.json:
        say_json(shown)
    else:
        say("\n".join(recipe_lines(shown)))
    return Exit.DONE
