"""Options that several verbs share, the types of their values, and which can be configured."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from gpudash.errors import UsageError
from workloads import DEFAULT, names
from workloads.nearest import not_valid

if TYPE_CHECKING:
    from pathlib import Path

COMMAND_LINE = "command line"
"""What has set the settings that the command line names."""
OPTIONS: dict[str, tuple[str, ...]] = {
    "": ("workload", "device", "interval", "rate", "ascii", "color", "price"),
    "ab": ("pairs", "within"),
    "replay": ("speed",),
    "sweep": ("rounds", "steps"),
    "tune": ("budget",),
    "why": ("budget", "seconds"),
}
"""The options that can be configured, by the verb's table; the table "" is for every verb."""
OF_A_RUN = {
    "csv": ("FILE", "the rows as CSV, into a file"),
    "jsonl": ("FILE", "the rows as JSON objects, one a line, into a file"),
    "prometheus": ("[HOST:]PORT", "served to Prometheus and its like"),
    "otlp": ("HOST:PORT", "sent to an OpenTelemetry collector, over HTTP"),
    "tensorboard": ("FOLDER", "event files of TensorBoard"),
    "trace": ("FILE.json", "a Chrome trace, as ui.perfetto.dev opens it"),
}
"""The sinks that `--to` begins: the target of each, and what it is."""
OF_A_SCRIPT = {
    **OF_A_RUN,
    "wandb": ("", "the run that the script has open in W&B"),
}
"""Those of a user's script, which may have a run of W&B open; that is all the target."""
OF_A_RECORDING = {name: OF_A_RUN[name] for name in ("otlp", "tensorboard", "trace")}
"""Those to which a recording is exported. Nobody scrapes the past."""
GONE = {
    "mlflow": "log FILE.csv as an artifact, or send --to otlp",
    "openmetrics": "read FILE.csv, or send --to otlp",
    "textfile": "serve a run --to prometheus",
    "trackio": "log FILE.csv, or send --to otlp",
}
"""What does it in place of a destination that there was."""
MOST_PROCESSES = 1024
DEVICES = ("auto", "cpu", "cuda", "cuda:N")


def add_training_options(parser: argparse.ArgumentParser, default: str | None = DEFAULT) -> None:
    group = parser.add_argument_group("training")
    group.add_argument(
        "workload", nargs="?", default=default, metavar="WORKLOAD", help=", ".join(names())
    )
    group.add_argument(
        "--set", action="append", default=[], metavar="LEVER=VALUE", help="see gpudash list"
    )
    group.add_argument("--batch-size", metavar="N", help="short for --set batch_size=N")
    pipelined = group.add_mutually_exclusive_group()
    add_switch(pipelined, "--pipelined", "--set pipelined=on")
    add_switch(pipelined, "--serial", "--set pipelined=off")
    group.add_argument("--seed", metavar="N", help="short for --set seed=N")
    group.add_argument(
        "--device",
        type=_device,
        default="auto",
        metavar="DEVICE",
        help="auto (default), cpu, cuda or cuda:N",
    )
    what = "train in N processes with DDP, each on a GPU of its own; batch_size is of each"
    add_whole(group, "--nproc", 1, MOST_PROCESSES, what)


def add_screen_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("screen")
    what = "redraws a second (default 4; less for slow links)"
    add_number(group, "--rate", 0.2, 30, "HZ", what, 4.0)


def add_quiet(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("-q", "--quiet", action="store_true", help="no progress; errors stay")


def add_record(group: "argparse._ArgumentGroup", more: str = "") -> None:
    """`more` is appended to its help."""
    add_file(group, "--record", "FILE.csv", f"write a CSV, FILE.json and FILE.jsonl{more}")


def add_recording_options(
    parser: argparse.ArgumentParser, to: Mapping[str, tuple[str, str]] = OF_A_RUN
) -> None:
    recording = parser.add_argument_group("recording")
    add_switch(recording, "--live", "with --record: the dashboard too")
    what = "seconds between rows (default 0.5)"
    add_number(recording, "--interval", 0.05, 3600, "S", what, 0.5)
    add_energy(recording)
    add_price(recording)
    add_switch(recording, "--every-step", "with --record: FILE.jsonl tells of each step")
    add_switch(recording, "--force", "overwrite an existing record file")
    add_destinations(recording, to, "each row to others too, as it comes")


def add_destinations(
    group: "argparse._ActionsContainer", valid: Mapping[str, tuple[str, str]], what: str
) -> None:
    known = [f"{name}:{target}" if target else name for name, (target, _) in valid.items()]

    def destination(text: str) -> tuple[str, str]:
        name, colon, target = text.partition(":")
        if name in GONE:
            raise UsageError(f"--to {name} went; instead: {GONE[name]}")
        is_whole = name in valid and (target if valid[name][0] else not colon)
        if not is_whole or "\0" in target:
            raise UsageError(not_valid("--to", text, known))
        return name, target or name

    group.add_argument(
        "--to",
        action="append",
        default=[],
        type=destination,
        metavar="NAME:TARGET",
        help=f"{what}: {', '.join(known)}",
    )


def once_each(destinations: Iterable[tuple[str, str]]) -> None:
    """Raise UsageError for two destinations of one name."""
    names = [name for name, _ in destinations]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--to {name} is given twice; valid: each name once")


def add_listening(parser: argparse.ArgumentParser) -> "argparse._ArgumentGroup":
    group = parser.add_argument_group("several nodes")
    group.add_argument(
        "--listen",
        metavar="[HOST:]PORT",
        help="show other nodes' ranks too, which connect there (host: 127.0.0.1)",
    )
    what = "holds what opens the connection (else GPUDASH_TOKEN, or --listen shows a new one)"
    add_file(group, "--token-file", "FILE", what)
    return group


def add_json(group: "argparse._ActionsContainer") -> None:
    add_switch(group, "--json", "print one JSON document")


def add_price(group: "argparse._ActionsContainer") -> None:
    what = "what a GPU costs for an hour: print the cost too"
    add_number(group, "--price", 0.0001, 1e6, "P", what)


def add_energy(group: "argparse._ActionsContainer") -> None:
    add_switch(group, "--energy", "an A/B finds joules of a sample too: blocks last at least 2 s")


def add_switch(group: "argparse._ActionsContainer", option: str, what: str) -> None:
    group.add_argument(option, action="store_true", help=what)


def add_number(
    group: "argparse._ActionsContainer",
    option: str,
    minimum: float,
    maximum: float,
    metavar: str,
    what: str,
    default: float | None = None,
) -> None:
    in_bounds = number(option, minimum, maximum)
    group.add_argument(option, type=in_bounds, default=default, metavar=metavar, help=what)


def add_file(group: "argparse._ActionsContainer", name: str, metavar: str, what: str) -> None:
    shown = name if name.startswith("-") else metavar
    group.add_argument(name, type=FileName(shown), metavar=metavar, help=what)


def add_whole(
    group: "argparse._ActionsContainer",
    option: str,
    minimum: int,
    maximum: int,
    what: str,
    default: int | None = None,
) -> None:
    as_whole = whole(option, minimum, maximum)
    group.add_argument(option, type=as_whole, default=default, metavar="N", help=what)


def add_output(
    parser: argparse.ArgumentParser,
    metavar: str,
    what: str,
    one_of: "argparse._MutuallyExclusiveGroup | None" = None,
) -> None:
    """Add --output and --force; --output is required, or one of a group."""
    (one_of or parser).add_argument(
        "-o",
        "--output",
        type=FileName("--output"),
        required=one_of is None,
        metavar=metavar,
        help=what,
    )
    add_switch(parser, "--force", "overwrite what exists")


class FileName:
    """The type of a file's name. Calling it raises UsageError for an invalid name."""

    def __init__(self, option: str) -> None:
        self._option = option

    def __call__(self, text: str) -> "Path":
        from pathlib import Path  # slow; help and completions do not need it

        if not text or "\0" in text:
            raise UsageError(f"{self._option} {text!r} is not valid; valid: a file's name")
        return Path(text)


def whole(option: str, minimum: int, maximum: int) -> Callable[[str], int]:
    as_number = number(option, minimum, maximum, whole=True)
    return lambda text: int(as_number(text))


def number(
    option: str, minimum: float, maximum: float, unit: str = "", *, whole: bool = False
) -> Callable[[str], float]:
    kind = "a whole number" if whole else "a number"
    valid = f"{kind} from {minimum:.15g}{unit} to {maximum:.15g}{unit}"

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not minimum <= number <= maximum or (whole and number % 1):  # also refuses nan
            raise UsageError(f"{option} {text or repr(text)}{unit} is not valid; valid: {valid}")
        return number

    return parse


def percent(option: str) -> Callable[[str], float]:
    """Return the type of a percentage, `1%` or `1`, as a share. It raises UsageError."""
    as_number = number(option, 0.01, 50, unit="%")
    return lambda text: as_number(text.removesuffix("%")) / 100


def _device(name: str) -> str:
    """Leave it to the worker to check whether the device exists."""
    kind, colon, index = name.partition(":")
    if name in ("auto", "cpu") or (
        kind == "cuda" and (not colon or (index.isascii() and index.isdecimal()))
    ):
        return name
    raise UsageError(not_valid("device", name, DEVICES))


def key_of(table: str, name: str) -> str:
    """Return the configuration's key of an option; `table` is the verb's, or "" for every verb."""
    return f"{table}.{name}" if table else name
