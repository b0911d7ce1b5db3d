"""`gpudash list`: print the workloads and their levers, as text or JSON."""

import argparse

from gpudash.cli.catalogue import as_text, catalogue
from gpudash.cli.plan import entry_of
from gpudash.cli.stdout import say, say_json
from gpudash.errors import Exit
from workloads import find_workload, names
from workloads.own.names import installed


def main(arguments: argparse.Namespace) -> int:
    if arguments.workload is None:
        entries, others = list(map(find_workload, names())), installed()
    else:
        entries, others = [entry_of(arguments.workload)], {}
    if arguments.json:
        say_json(catalogue(entries, others))
    else:
        say(as_text(entries, others))
    return Exit.DONE
