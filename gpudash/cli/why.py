"""`gpudash why`."""

from gpudash.cli.options import (
    add_json,
    add_number,
    add_quiet,
    add_switch,
    add_training_options,
)
from gpudash.cli.parser import Parser, Verb
from gpudash.errors import Exit

SECONDS = 15.0
"""Seconds of training behind an answer: the recent steps of which it is are of ten."""
BUDGET_S = 30.0


def add_arguments(parser: Parser) -> None:
    add_training_options(parser)
    question = parser.add_argument_group("measuring")
    budget = f"end so long after the first step ({BUDGET_S:.0f}), with --prove 90 s later"
    add_number(question, "--budget", 1, 86_400, "S", budget, BUDGET_S)
    seconds = f"measure steps for so long ({SECONDS:.0f}), in half of the budget at most"
    add_number(question, "--seconds", 1, 3600, "S", seconds, SECONDS)
    prove = "slow each part of a step in turns, at most 60 s: proves the limit, or withdraws it"
    add_switch(question, "--prove", prove)
    profile = question.add_mutually_exclusive_group()
    add_switch(profile, "--no-profile", "trace no steps: a profile tells waits from launches")
    add_switch(profile, "--with-profile", "fail without a profile")
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
        ("gpudash why --json --budget 60 train.py", "for a program, within a minute"),
    ),
    exits=(Exit.DONE, Exit.FAILED, Exit.REFUSED, Exit.INTERRUPTED),
    configuration="obeyed",
    user_command="or workload",
    module="gpudash.cli.why_trial",
)
