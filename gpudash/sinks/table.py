"""All kinds of sinks by name."""

from importlib import import_module

from gpudash.errors import UsageError
from gpudash.sinks.sink import Opener

SINKS = {
    "recording": "gpudash.sinks.recording:RecordingWriter",
    "csv": "gpudash.sinks.rows:CsvRows",
    "jsonl": "gpudash.sinks.rows:JsonRows",
}
"""Name → module and class, so that only what is used is imported."""


def opener(name: str) -> Opener:
    """Return the class of this name. Raises UsageError."""
    if name not in SINKS:
        raise UsageError(f"{name} is no sink; valid: {', '.join(SINKS)}")
    module, _, kind = SINKS[name].partition(":")
    found: Opener = getattr(import_module(module), kind)
    return found
