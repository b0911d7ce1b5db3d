"""`gpudash ab`."""

from gpudash.cli.options import (
    FileName,
    add_energy,
    add_json,
    add_price,
    add_quiet,
    add_switch,
    add_training_options,
    add_whole,
    percent,
)
from gpudash.cli.parser import Parser, Verb
from gpudash.compare.lengths import PAIRS, PAIRS_OF_A_START
from gpudash.errors import Exit

MOST_STARTS = 100


def add_arguments(parser: Parser) -> None:
    add_training_options(parser)
    question = parser.add_argument_group("comparison")
    what = question.add_mutually_exclusive_group(required=True)
    what.add_argument("--lever", metavar="NAME=A,B", help="what to compare; see gpudash list")
    cost = "compare gpudash's own instruments on and off: what measuring costs"
    add_switch(what, "--no-instruments", cost)
    pairs = f"pairs of blocks at most ({PAIRS}), or in each of several starts ({PAIRS_OF_A_START})"
    add_whole(question, "--pairs", 2, 10_000, pairs)
    question.add_argument(
        "--within",
        type=percent("--within"),
        metavar="P%",
        help="know the change to ± this; by default to a quarter of it, or 1%% if more",
    )
    starts = "start the training N times, and judge over the starts (1)"
    add_whole(question, "--starts", 1, MOST_STARTS, starts, 1)
    add_energy(question)
    result = parser.add_argument_group("output")
    add_price(result)
    add_json(result)
    add_quiet(result)
    codes = (
        f"exit {Exit.DONE:d} if B is faster, {Exit.NOT_SHOWN:d} if no difference is shown, "
        f"{Exit.SLOWER:d} if it is slower"
    )
    add_switch(result, "--exit-code", codes)
    result.add_argument(
        "--card",
        type=FileName("--card"),
        metavar="FILE",
        help="write the verdict for a pull request: FILE.svg is a picture, FILE.md is Markdown",
    )
    add_switch(result, "--force", "overwrite an existing card")


VERB = Verb(
    name="ab",
    also="gpudash ab [options] SCRIPT.py ARGS … | -m MODULE ARGS … | -- COMMAND …",
    details=lambda: (
        "Both values are measured in interleaved blocks of one training.\n"
        "docs/concepts/statistics.md says how, and why so.\n"
        "A command of yours is ended once there is a verdict: as by Ctrl-C, after 10 s by "
        "SIGTERM, after 30 s by SIGKILL. With --json its output goes to standard error.\n"
        "With --starts the same command runs anew for each start, one after the other: what it "
        "writes is written again."
    ),
    add_arguments=add_arguments,
    examples=(
        ("gpudash ab encdec --lever pipelined=off,on", "is pipelining faster here?"),
        ("gpudash ab --lever num_workers=2,8 train.py", "more loader workers in a script?"),
        (
            "gpudash ab encdec --lever pipelined=off,on --starts 4",
            "does it hold at the next start?",
        ),
        ("gpudash ab encdec --lever pipelined=off,on --card ab.svg", "… as a picture"),
        ("gpudash ab encdec --lever pipelined=off,on --energy --price 2.75", "… and what it saves"),
        ("gpudash ab encdec --no-instruments", "what gpudash's own instruments cost"),
    ),
    exits=tuple(Exit),
    meanings={Exit.DONE: "done; with --exit-code: B is faster"},
    configuration="obeyed",
    user_command="or workload",
    module="gpudash.cli.ab_starts",
)
