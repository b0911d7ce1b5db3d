"""`gpudash schema`: print the JSON Schema of every JSON document that gpudash writes."""

import argparse
from importlib import import_module

import msgspec

from gpudash.cli.stdout import say, say_json
from gpudash.errors import UsageError
from workloads.nearest import unknown

DOCUMENTS = {
    "ab": "gpudash.cli.ab_report:ComparisonReport",
    "ab-changes": "gpudash.cli.changes_report:ChangeReport",
    "attempts": "gpudash.cli.attempts:AttemptsReport",
    "compare": "gpudash.compare.runs.comparison:RunComparison",
    "doctor": "gpudash.cli.doctor:Report",
    "gate": "gpudash.cli.gate_report:GateReport",
    "gate-calibrate": "gpudash.cli.gate_report:CalibrationReport",
    "info": "gpudash.cli.info:Info",
    "list": "gpudash.cli.catalogue:Catalogue",
    "profile": "gpudash.cli.profile:ProfileReport",
    "recording": "gpudash.recording.provenance:Metadata",
    "show": "gpudash.cli.catalogue:Shown",
    "sweep": "gpudash.compare.sweep.file:Provenance",
    "tune": "gpudash.cli.tune:TuneReport",
    "why": "gpudash.cli.why:WhyReport",
}
"""Name → record. `recording` is a recording's FILE.json; `sweep` is also a sweep's FILE.json."""


def main(arguments: argparse.Namespace) -> None:
    name = arguments.name
    if name is None:
        say("\n".join(DOCUMENTS))
    elif name in DOCUMENTS:
        say_json(msgspec.json.schema(record(name)), indent=2)
    else:
        raise UsageError(unknown("schema", name, DOCUMENTS))


def record(name: str) -> type[msgspec.Struct]:
    module, _, record = DOCUMENTS[name].partition(":")
    found: type[msgspec.Struct] = getattr(import_module(module), record)
    return found
