"""`gpudash sweep`."""

from gpudash.cli.options import (
    MOST_PROCESSES,
    add_file,
    add_json,
    add_quiet,
    add_switch,
    add_training_options,
    add_whole,
    whole,
)
from gpudash.cli.parser import Parser, Verb
from gpudash.compare.lengths import ROUNDS
from gpudash.compare.sweep.presets import ON_GPU
from gpudash.errors import Exit, UsageError


def add_arguments(parser: Parser) -> None:
    add_training_options(parser, default=None)  # a preset has its own workload
    nproc = parser.options["nproc"]
    nproc.type, nproc.metavar = _process_counts, "N,…"
    nproc.help = (
        "train in N processes with DDP; several numbers: a training each, and how they scale"
    )
    table = parser.add_argument_group("table")
    table.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="LEVER=A,B,…",
        help="measure these values; several make a grid",
    )
    table.add_argument("--preset", metavar="PRESET", help=f"a table by name: {', '.join(ON_GPU)}")
    add_whole(table, "--steps", 1, 10**6, "steps measured in a block (10, at least 1 s)")
    rounds = f"blocks of each setting ({ROUNDS}, or the preset's)"
    add_whole(table, "--rounds", 2, 1000, rounds)
    add_switch(table, "--dry-run", "say how many settings and how long; train nothing")
    result = parser.add_argument_group("output")
    add_json(result)
    add_file(result, "--csv", "FILE", "write every block, and FILE.json")
    add_switch(result, "--resume", "finish the sweep of --csv FILE")
    add_file(result, "--markdown", "FILE", "write the table")
    add_file(result, "--plot", "FILE", "draw it, as .svg or .png")
    add_quiet(result)
    add_switch(result, "--force", "overwrite existing files")


def _process_counts(text: str) -> tuple[int, ...]:
    numbers = tuple(map(whole("--nproc", 1, MOST_PROCESSES), text.split(",")))
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"--nproc {text} names a number twice; valid: each once")
    return numbers


VERB = Verb(
    name="sweep",
    also="gpudash sweep [options] SCRIPT.py ARGS … | -m MODULE ARGS … | -- COMMAND …",
    details=lambda: (
        "All settings take turns in blocks of one training, and each is compared with the first.\n"
        "A command of yours is ended once that is done: as by Ctrl-C, after 10 s by SIGTERM, "
        "after 30 s by SIGKILL. With --json its output goes to standard error."
    ),
    add_arguments=add_arguments,
    examples=(
        ("gpudash sweep --vary pipelined=off,on --vary batch_size=4,8", "a table of four settings"),
        ("gpudash sweep --vary num_workers=2,4,8 train.py", "levers of a script of yours"),
        ("gpudash sweep encdec --nproc 1,2", "how much faster are two GPUs?"),
        ("gpudash sweep --preset encdec --csv s.csv --plot s.svg", "a source's table, as files"),
    ),
    exits=(Exit.DONE, Exit.FAILED, Exit.REFUSED, Exit.INTERRUPTED),
    configuration="obeyed",
    user_command="or workload",
    module="gpudash.cli.sweep_run",
)
