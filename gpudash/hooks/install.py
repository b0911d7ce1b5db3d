"""The hooks' way in: what the injected `sitecustomize` calls once torch has been imported."""

from gpudash.hooks.start import start
from gpudash.rendezvous import of_environment


def install() -> None:
    """Look for a training in this process, if it is of a run."""
    rendezvous = of_environment()
    if rendezvous is not None:
        start(rendezvous)
