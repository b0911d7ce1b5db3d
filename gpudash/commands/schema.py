"""`gpudash schema`: print the JSON Schema of every JSON document that gpudash writes."""

import argparse
from importlib import import_module

import msgspec

from gpudash.commands.stdout import say, say_json
from gpudash.errors import Exit, UsageError
from workloads.nearest import unknown

DOCUMENTS = {
    "ab": "gpudash.commands.ab:Verdict",
    "compare": "gpudash.compare.runs.comparison:RunComparison",
    "doctor": "gpudash.commands.doctor:Report",
    "info": "gpudash.commands.info:Info",
    "list": "gpudash.commands.list:Catalogue",
    "profile": "gpudash.commands.profile:ProfileReport",
    "recording": "gpudash.recording.provenance:Metadata",
    "show": "gpudash.commands.show:Shown",
    "sweep": "gpudash.compare.sweep.file:Provenance",
}
"""Name → record. `recording` is a recording's FILE.json; `sweep` is also a sweep's FILE.json."""


def main(arguments: argparse.Namespace) -> int:
    """Print a schema, or the names. Raises UsageError for an unknown name."""
    name = arguments.name
    if name is None:
        say("\n".join(DOCUMENTS))
    elif name in DOCUMENTS:
        say_json(msgspec.json.schema(record(name)), indent=2)
    else:
        raise UsageError(unknown("schema", name, DOCUMENTS))
    return Exit.DONE


def record(name: str) -> type[msgspec.Struct]:
    """Return the type of a document."""
    module, _, record = DOCUMENTS[name].partition(":")
    found: type[msgspec.Struct] = getattr(import_module(module), record)
    return found
