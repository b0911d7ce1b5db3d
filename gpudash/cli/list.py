"""`gpudash list`: print the workloads and their levers, as text or JSON."""

import argparse

from gpudash.cli.catalogue import as_text, catalogue
from gpudash.cli.plan import entry_of
from gpudash.cli.stdout import say_found
from workloads import find_workload, names
from workloads.own.names import installed


def main(arguments: argparse.Namespace) -> None:
    if arguments.workload is None:
        entries, others = list(map(find_workload, names())), installed()
    else:
        entries, others = [entry_of(arguments.workload)], {}
    document, text = catalogue(entries, others), as_text(entries, others)
    say_found(document, text, as_json=arguments.json)
