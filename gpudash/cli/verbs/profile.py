"""`gpudash profile`."""

from gpudash.cli.options import (
    FileName,
    add_profile_option,
    add_quiet,
    add_training_options,
    whole,
)
from gpudash.cli.parser import Parser, Verb
from gpudash.errors import Exit

STEPS = 10


def add_arguments(parser: Parser) -> None:
    """Add what `profile` takes."""
    add_training_options(parser)
    profile = parser.add_argument_group("profile")
    profile.add_argument(
        "--steps",
        type=whole("--steps", 1, 1000),
        default=STEPS,
        metavar="N",
        help=f"steps that are traced ({STEPS})",
    )
    profile.add_argument(
        "--trace",
        type=FileName("--trace"),
        metavar="FILE.json",
        help="the Chrome trace (NAME.trace.json, by what is trained)",
    )
    profile.add_argument("--force", action="store_true", help="overwrite an existing trace")
    profile.add_argument(
        "--read",
        type=FileName("--read"),
        metavar="FILE.json",
        help="train nothing: read a trace of torch.profiler's",
    )
    result = parser.add_argument_group("output")
    result.add_argument(
        "--against",
        type=FileName("--against"),
        metavar="FILE.json",
        help="what has changed since this trace, kernel by kernel",
    )
    result.add_argument("--json", action="store_true", help="print one JSON document")
    add_quiet(result)
    add_profile_option(parser)


VERB = Verb(
    name="profile",
    also="gpudash profile … -- SCRIPT.py ARGS … | -- -m MODULE ARGS … | -- COMMAND …",
    summary="What the time of a few steps goes into, by torch.profiler.",
    details=lambda: (
        "The steps after the warm-up are traced. The trace opens in ui.perfetto.dev too.\n"
        "A command of yours after -- is ended once the trace is written: as by Ctrl-C, after 10 s "
        "by SIGTERM, after 30 s by SIGKILL. With --json its output goes to standard error."
    ),
    add_arguments=add_arguments,
    examples=(
        ("gpudash profile encdec", "ten steps, as text, and encdec.trace.json"),
        ("gpudash profile --steps 3 -- train.py", "three steps of a script"),
        ("gpudash profile --read new.json --against old.json", "what has changed"),
    ),
    exits=(Exit.DONE, Exit.FAILED, Exit.REFUSED, Exit.INTERRUPTED),
    module="gpudash.commands.profile",
    configuration="obeyed",
    user_command="after --",
)
