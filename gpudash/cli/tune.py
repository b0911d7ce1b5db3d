"""`gpudash tune`."""

from gpudash.cli.options import (
    add_energy,
    add_json,
    add_number,
    add_price,
    add_quiet,
    add_switch,
    add_training_options,
)
from gpudash.cli.parser import Parser, Verb
from gpudash.errors import Exit

BUDGET_S = 60.0
"""Seconds of training, without compiling."""


def add_arguments(parser: Parser) -> None:
    add_training_options(parser)
    group = parser.add_argument_group("tuning")
    group.add_argument(
        "--levers",
        dest="only",
        metavar="A,B,…",
        help="try these alone; by default all that change no results",
    )
    what = f"seconds of training, without compiling ({BUDGET_S:.0f})"
    add_number(group, "--budget", 5, 86_400, "S", what, BUDGET_S)
    numerics = "try levers that compute other numbers too, such as precision"
    add_switch(group, "--numerics", numerics)
    add_switch(group, "--fresh", "forget what an earlier tune of this training found")
    add_energy(group)
    result = parser.add_argument_group("output")
    add_price(result)
    save = "write the best as [profiles.NAME] into the project's configuration file"
    result.add_argument("--save", metavar="NAME", help=save)
    add_json(result)
    add_quiet(result)
    codes = f"exit {Exit.DONE:d} if something is proven faster, {Exit.NOT_SHOWN:d} if nothing is"
    add_switch(result, "--exit-code", codes)


VERB = Verb(
    name="tune",
    also="gpudash tune [options] SCRIPT.py ARGS … | -m MODULE ARGS … | -- COMMAND …",
    details=lambda: (
        "Levers are tried one after the other in interleaved blocks of one training, those that "
        "promise most first. The best setting is then proven against the start.\n"
        "What changes the training itself (batch_size, data, model_scale, seed) is tried only if "
        "--levers names it.\n"
        "A command of yours is ended once there is a verdict: as by Ctrl-C, after 10 s by "
        "SIGTERM, after 30 s by SIGKILL. With --json its output goes to standard error."
    ),
    add_arguments=add_arguments,
    examples=(
        ("gpudash tune train.py", "the best loader for a script"),
        ("gpudash tune --numerics train.py", "… with precision, compile and the like"),
        ("gpudash tune encdec --save fast", "keep the best: gpudash encdec --profile fast"),
    ),
    exits=tuple(code for code in Exit if code != Exit.SLOWER),
    meanings={
        Exit.DONE: "done; with --exit-code: something is proven faster",
        Exit.NOT_SHOWN: "with --exit-code: nothing is proven faster",
    },
    configuration="obeyed",
    user_command="or workload",
    module="gpudash.cli.tune_trial",
)
