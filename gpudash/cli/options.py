"""Options as records: their kinds, those that several verbs share, which can be configured."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from gpudash import __version__
from gpudash.cli.stdout import say
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
OF_A_SCRIPT = {**OF_A_RUN, "wandb": ("", "the run that the script has open in W&B")}
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
PACKAGES = ("torch", "torchvision", "textual", "nvidia-ml-py")
COLORS = ("auto", "always", "never")


class Option(NamedTuple):
    """An option, or an argument by its place."""

    names: tuple[str, ...]
    how: Mapping[str, Any]
    """What argparse's `add_argument` takes besides."""


class OneOf(NamedTuple):
    """Options of which at most one is given."""

    options: tuple[Option, ...]
    required: bool = False
    """Whether one has to be."""


class Group(NamedTuple):
    """Options under a title of the help."""

    title: str
    options: tuple[Option | OneOf, ...]


Options: TypeAlias = tuple[Option | OneOf | Group, ...]


# ── types of values: each raises UsageError for what is not valid ───────────────────────


class FileName:
    """The type of a file's name."""

    def __init__(self, option: str) -> None:
        self._option = option

    def __call__(self, text: str) -> "Path":
        from pathlib import Path  # slow; help and completions do not need it

        if not text or "\0" in text:
            raise UsageError(f"{self._option} {text!r} is not valid; valid: a file's name")
        return Path(text)


class Destination:
    """The type of a sink with its target."""

    def __init__(self, valid: Mapping[str, tuple[str, str]]) -> None:
        self.valid = valid
        self.known = [f"{name}:{target}" if target else name for name, (target, _) in valid.items()]

    def __call__(self, text: str) -> tuple[str, str]:
        name, colon, target = text.partition(":")
        if name in GONE:
            raise UsageError(f"--to {name} went; instead: {GONE[name]}")
        is_whole = name in self.valid and (target if self.valid[name][0] else not colon)
        if not is_whole or "\0" in target:
            raise UsageError(not_valid("--to", text, self.known))
        return name, target or name


def once_each(destinations: Iterable[tuple[str, str]]) -> None:
    """Raise UsageError for two destinations of one name."""
    names = [name for name, _ in destinations]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--to {name} is given twice; valid: each name once")


def bounded(
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
        return int(number) if whole else number

    return parse


def percent(option: str) -> Callable[[str], float]:
    """Return the type of a percentage, `1%` or `1`, as a share."""
    as_number = bounded(option, 0.01, 50, unit="%")
    return lambda text: as_number(text.removesuffix("%")) / 100


def process_counts(text: str) -> tuple[int, ...]:
    numbers = tuple(int(PROCESSES(one)) for one in text.split(","))
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"--nproc {text} names a number twice; valid: each once")
    return numbers


def device(name: str) -> str:
    """Leave it to the worker to check whether the device exists."""
    kind, colon, index = name.partition(":")
    if name in ("auto", "cpu") or (
        kind == "cuda" and (not colon or (index.isascii() and index.isdecimal()))
    ):
        return name
    raise UsageError(not_valid("device", name, DEVICES))


PROCESSES = bounded("--nproc", 1, MOST_PROCESSES, whole=True)


class Versions(argparse.Action):
    """Prints the versions of gpudash, Python and the libraries of training and screen."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print and exit, without importing the libraries."""
        gpudash, *others = [f"{name} {version or '–'}" for name, version in versions().items()]
        say(f"{gpudash}\n{', '.join(others)}")
        parser.exit()


def versions() -> dict[str, str | None]:
    """Import no package; None stands for one that is not installed."""
    import platform  # slow, as the next
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str | None] = {"gpudash": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


# ── kinds of options ────────────────────────────────────────────────────────────────────


def option(name: str, metavar: str, what: str, **how: Any) -> Option:
    return Option((name,), {"metavar": metavar, "help": what} | how)


def argument(name: str, metavar: str, what: str, **how: Any) -> Option:
    """Return one that may be left out."""
    return option(name, metavar, what, nargs="?", **how)


def switch(name: str, what: str, *other_names: str) -> Option:
    return Option((*other_names, name), {"action": "store_true", "help": what})


def one_of(*options: Option, required: bool = False) -> OneOf:
    return OneOf(options, required)


def group(title: str, *options: Option | OneOf) -> Group:
    return Group(title, options)


def several(name: str, metavar: str, what: str, **how: Any) -> Option:
    """Return one that may be given several times."""
    return option(name, metavar, what, action="append", default=[], **how)


def number(
    name: str, minimum: float, maximum: float, metavar: str, what: str, default: float | None = None
) -> Option:
    return option(name, metavar, what, type=bounded(name, minimum, maximum), default=default)


def budget(what: str, default: float, least: float = 1) -> Option:
    """Return `--budget`, in seconds or, as `5m`, in minutes."""
    as_number = bounded("--budget", least, 86_400, unit=" s")

    def seconds(text: str) -> float:
        minutes = text.removesuffix("m")
        with suppress(ValueError):
            text = f"{60 * float(minutes):g}" if minutes != text else text
        return as_number(text.removesuffix("s"))

    return option("--budget", "S", what, type=seconds, default=default)


def whole(name: str, minimum: int, maximum: int, what: str, default: int | None = None) -> Option:
    as_whole = bounded(name, minimum, maximum, whole=True)
    return option(name, "N", what, type=as_whole, default=default)


def file(name: str, metavar: str, what: str, *short: str, **how: Any) -> Option:
    shown = name if name.startswith("-") else metavar
    return Option((*short, name), {"type": FileName(shown), "metavar": metavar, "help": what} | how)


# ── options of several verbs ────────────────────────────────────────────────────────────

QUIET = switch("--quiet", "no progress; errors stay", "-q")
JSON = switch("--json", "print one JSON document")
PRICE = number("--price", 0.0001, 1e6, "P", "what a GPU costs for an hour: print the cost too")
ENERGY = switch("--energy", "an A/B finds joules of a sample too: blocks last at least 2 s")
OVERWRITE = switch("--force", "overwrite what exists")
WORKLOAD = argument("workload", "WORKLOAD", ", ".join(names()), default=DEFAULT)
NPROC = option(
    "--nproc",
    "N",
    "train in N processes with DDP, each on a GPU of its own; batch_size is of each",
    type=PROCESSES,
)
PROFILE = group(
    "the configuration",
    option("--profile", "NAME", "obey [profiles.NAME] of the configuration files too"),
)
SCREEN = group(
    "screen",
    number("--rate", 0.2, 30, "HZ", "redraws a second (default 4; less for slow links)", 4.0),
)
LISTENING = group(
    "several nodes",
    option(
        "--listen",
        "[HOST:]PORT",
        "show other nodes' ranks too, which connect there (host: 127.0.0.1)",
    ),
    file(
        "--token-file",
        "FILE",
        "holds what opens the connection (else GPUDASH_TOKEN, or --listen shows a new one)",
    ),
)
OF_EVERY_VERB = (
    switch("--ascii", "print and draw ASCII alone"),
    option(
        "--color",
        "WHEN",
        f"{', '.join(COLORS)}; auto: on a terminal, unless NO_COLOR is set",
        choices=COLORS,
        default="auto",
    ),
)


def training(workload: Option = WORKLOAD, nproc: Option = NPROC) -> Group:
    return group(
        "training",
        workload,
        several("--set", "LEVER=VALUE", "see gpudash list"),
        option("--batch-size", "N", "short for --set batch_size=N"),
        one_of(
            switch("--pipelined", "--set pipelined=on"), switch("--serial", "--set pipelined=off")
        ),
        option("--seed", "N", "short for --set seed=N"),
        option(
            "--device", "DEVICE", "auto (default), cpu, cuda or cuda:N", type=device, default="auto"
        ),
        nproc,
    )


def record(more: str = "") -> Option:
    """`more` is appended to its help."""
    return file("--record", "FILE.csv", f"write a CSV, FILE.json and FILE.jsonl{more}")


def recording(to: Mapping[str, tuple[str, str]] = OF_A_RUN) -> Group:
    return group(
        "recording",
        switch("--live", "with --record: the dashboard too"),
        number("--interval", 0.05, 3600, "S", "seconds between rows (default 0.5)", 0.5),
        ENERGY,
        PRICE,
        switch("--every-step", "with --record: FILE.jsonl tells of each step"),
        switch("--force", "overwrite an existing record file"),
        destinations(to, "each row to others too, as it comes"),
    )


def destinations(valid: Mapping[str, tuple[str, str]], what: str) -> Option:
    of = Destination(valid)
    return several("--to", "NAME:TARGET", f"{what}: {', '.join(of.known)}", type=of)


def key_of(table: str, name: str) -> str:
    """Return the configuration's key of an option; `table` is the verb's, or "" for every verb."""
    return f"{table}.{name}" if table else name
