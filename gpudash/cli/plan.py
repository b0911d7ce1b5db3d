"""Make the plan of a training from a command line, and check compared values."""

import argparse
from collections.abc import Collection, Iterable, Mapping

from gpudash.cli.options import COMMAND_LINE
from gpudash.cli.stdout import passing
from gpudash.errors import UsageError
from gpudash.offers import canonical
from gpudash.protocol.commands import Plan
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Lever
from gpudash.workload_levers import levers_of
from workloads import CATALOGUE, Entry, add
from workloads.levers import AUTO, find
from workloads.needs import check
from workloads.standard_levers import PROCESSES

OF_WORKLOADS = ("set", "batch_size", "pipelined", "serial", "seed", "nproc")


def make_plan(
    arguments: argparse.Namespace,
    decided: Collection[str] = (),
    *,
    nproc: int | None = None,
    trains: bool = True,
) -> Plan:
    """Return a plan without an end, and record what has set its levers.

    `decided` are levers that the command line sets elsewhere: configured values of them do not
    count. `nproc` is used if the command line names several numbers of processes. A plan that
    nobody `trains` needs no torch. Raises LeverError or UsageError.
    """
    nproc = nproc or arguments.nproc or 1
    entry = entry_of(arguments.workload)
    if nproc > 1:
        entry = together(entry, arguments.device)
    shorthands = {
        "batch_size": arguments.batch_size,
        "seed": arguments.seed,
        "pipelined": "on" if arguments.pipelined else "off" if arguments.serial else None,
    }
    asked = [_pair(text) for text in arguments.set]
    _check_alone(nproc, [name for name, _ in asked])
    asked += [(name, value) for name, value in shorthands.items() if value is not None]
    settings = _settings(entry, asked)
    configured: Mapping[str, tuple[str, str]] = arguments.levers(entry)
    for name, (value, by) in configured.items():
        if name not in settings and name not in decided:
            settings[name] = find(levers_of(entry), name).canonical(value)
            arguments.set_by[f"levers.{name}"] = by
    arguments.set_by |= {f"levers.{name}": COMMAND_LINE for name, _ in asked}
    if trains:
        check(entry.name, entry.needs)
    return Plan(workload=entry.name, settings=settings, device=arguments.device, nproc=nproc)


def together(entry: Entry, device: str) -> Entry:
    """Add the levers of several processes to all workloads' entries; return this one."""
    if ":" in device:
        raise UsageError(
            f"--device {device} is one GPU, and --nproc takes one for each process; "
            "valid with it: auto, cpu, cuda"
        )
    for known in list(CATALOGUE.values()):
        add(known.of_processes())
    return CATALOGUE[entry.name]


def _check_alone(nproc: int, names: Iterable[str]) -> None:
    for lever in PROCESSES if nproc == 1 else ():
        if lever.name in names:
            raise UsageError(f"lever {lever.name} goes with several processes: --nproc N")


def check_with_command(arguments: argparse.Namespace) -> None:
    """Raise UsageError for options of gpudash's workloads beside a user's command."""
    for name in OF_WORKLOADS:
        if getattr(arguments, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} does not go with a command of yours, which sets that")
    for name in ("workload", "device"):
        if arguments.set_by.get(name) == COMMAND_LINE:
            raise UsageError(
                f"{getattr(arguments, name)} does not go with a command of yours; "
                "valid: one of the two"
            )


def entry_of(name: str) -> Entry:
    """Raise LeverError for an unknown name."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    from gpudash.run.own_workload import find  # not for the catalogue

    with passing(f"reading {name}"):
        return find(name)


def compared_values(option: str, text: str, lever: Lever, values: Iterable[str]) -> list[str]:
    """Raise LeverError, or UsageError for `auto`, which might be equal to another value."""
    found = [canonical(lever, value) for value in values]
    if AUTO in found:
        raise UsageError(
            f"{option} {text} is not valid: {AUTO} stands for another value, name that"
        )
    return found


def _settings(entry: Entry, asked: Iterable[tuple[str, str]]) -> Settings:
    settings: Settings = {}
    for name, text in asked:
        value = find(levers_of(entry), name).canonical(text)
        known = settings.setdefault(name, value)
        if known != value:
            raise UsageError(
                f"lever {name} is set to {known} and to {value}; valid: one of the two"
            )
    return settings


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise UsageError(f"--set {text!r} is not valid; valid: LEVER=VALUE")
    return name, value
