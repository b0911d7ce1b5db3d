"""Describe a workload of the user's: a child does, so that their code is never imported here."""

import msgspec

from gpudash.format import plain
from gpudash.protocol.training import Described, Description
from gpudash.reference_levers import from_record
from gpudash.run import child
from workloads import CATALOGUE, Entry, add
from workloads.levers import LeverError
from workloads.nearest import unknown
from workloads.own.names import installed, is_file


def find(name: str) -> Entry:
    """Raise LeverError with the line that failed."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    if not name.isprintable():
        raise LeverError(f"workload {name!r} is not valid; valid: a name of printable UTF-8")
    if not is_file(name) and name not in installed():
        raise LeverError(unknown("workload", name, [*CATALOGUE, *installed()]))
    done = child.run("-m", "gpudash.worker.describe", name)
    try:
        description: Description = msgspec.json.decode(done.stdout, type=Description)
    except msgspec.DecodeError as error:  # it ended without a description
        words = [line for line in done.stderr.splitlines() if line.strip()] or [""]
        why = f"{name}: Python ended with {done.returncode} while importing it: {words[-1]}"
        raise LeverError(plain(why.rstrip(": "))) from error
    if not isinstance(description, Described):
        raise LeverError(plain(description.why))
    return add(
        Entry(
            name=name,
            summary=plain(description.summary),
            source=description.source,
            levers=tuple(map(from_record, description.levers)),
            module="workloads.own.adapter",
            on_cpu={one.name: one.on_cpu for one in description.levers if one.on_cpu},
        )
    )
