"""`gpudash profile`."""

from gpudash.cli.options import (
    add_file,
    add_json,
    add_quiet,
    add_switch,
    add_training_options,
    add_whole,
)
from gpudash.cli.parser import Parser, Verb
from gpudash.errors import Exit

STEPS = 10


def add_arguments(parser: Parser) -> None:
    add_training_options(parser)
    profile = parser.add_argument_group("profile")
    add_whole(profile, "--steps", 1, 1000, f"steps that are traced ({STEPS})", STEPS)
    trace = "the Chrome trace (NAME.trace.json, by what is trained)"
    add_file(profile, "--trace", "FILE.json", trace)
    add_switch(profile, "--force", "overwrite an existing trace")
    read = "train nothing: read a trace of torch.profiler's"
    add_file(profile, "--read", "FILE.json", read)
    result = parser.add_argument_group("output")
    against = "what has changed since this trace, kernel by kernel"
    add_file(result, "--against", "FILE.json", against)
    add_json(result)
    add_quiet(result)


VERB = Verb(
    name="profile",
    also="gpudash profile [options] SCRIPT.py ARGS … | -m MODULE ARGS … | -- COMMAND …",
    details=lambda: (
        "The steps after the warm-up are traced. The trace opens in ui.perfetto.dev too.\n"
        "A command of yours is ended once the trace is written: as by Ctrl-C, after 10 s "
        "by SIGTERM, after 30 s by SIGKILL. With --json its output goes to standard error."
    ),
    add_arguments=add_arguments,
    examples=(
        ("gpudash profile encdec", "ten steps, as text, and encdec.trace.json"),
        ("gpudash profile --steps 3 train.py", "three steps of a script"),
        ("gpudash profile --read new.json --against old.json", "what has changed"),
    ),
    exits=(Exit.DONE, Exit.FAILED, Exit.REFUSED, Exit.INTERRUPTED),
    configuration="obeyed",
    user_command="or workload",
    module="gpudash.cli.profile_trial",
)
