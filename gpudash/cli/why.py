"""`gpudash why`."""

from gpudash.cli.options import (
    add_json,
    add_quiet,
    add_switch,
    add_training_options,
    number,
)
from gpudash.cli.parser import Parser, Verb
from gpudash.errors import Exit

SECONDS = 15.0
"""Seconds of training behind an answer: the recent steps of which it is are of ten."""


def add_arguments(parser: Parser) -> None:
    add_training_options(parser)
    question = parser.add_argument_group("measuring")
    question.add_argument(
        "--seconds",
        type=number("--seconds", 1, 3600),
        default=SECONDS,
        metavar="S",
        help=f"measure steps for so long after the first one ({SECONDS:.0f})",
    )
    prove = "slow each part of a step in turns, at most 60 s: proves the limit, or withdraws it"
    add_switch(question, "--prove", prove)
    add_switch(question, "--with-profile", "trace ten steps too: it tells waits from launches")
    result = parser.add_argument_group("output")
    add_json(result)
    add_quiet(result)


VERB = Verb(
    name="why",
    also="gpudash why [options] SCRIPT.py ARGS … | -m MODULE ARGS … | -- COMMAND …",
    details=lambda: (
        "Prints what limits the training, its evidence, and what each lever would bring.\n"
        "A command of yours is ended once that is known: as by Ctrl-C, after 10 s by "
        "SIGTERM, after 30 s by SIGKILL. With --json its output goes to standard error.\n"
        "docs/concepts/diagnosis.md says how the answer is found."
    ),
    add_arguments=add_arguments,
    examples=(
        ("gpudash why train.py", "what limits a script"),
        ("gpudash why jpeg_input --prove", "… and is that so: each part is slowed"),
        ("gpudash why --json --with-profile train.py", "for a program, with a profile"),
    ),
    exits=(Exit.DONE, Exit.FAILED, Exit.REFUSED, Exit.INTERRUPTED),
    configuration="obeyed",
    user_command="or workload",
    module="gpudash.cli.why_trial",
)
