"""The verbs, a module each: `VERB` says what it takes, and `main` does it."""

from importlib import import_module

from gpudash.cli.parser import Verb, definitions

VERBS = (
    "list",
    "show",
    "run",
    "attach",
    "ab",
    "sweep",
    "profile",
    "train",
    "replay",
    "report",
    "export",
    "compare",
    "doctor",
    "info",
    "schema",
    "completion",
    "help",
)
"""The verbs in the order of `gpudash --help`."""


def load(name: str) -> Verb:
    """Return a verb by its name; the dashboard's name is empty."""
    verb: Verb = import_module(f"gpudash.cli.{name or 'dashboard'}").VERB
    return verb


def summaries() -> str:
    """Return the list of verbs for the help, with a line each."""
    verbs = [(name, load(name).summary) for name in VERBS]
    return definitions("verbs (gpudash help VERB says more)", verbs)
