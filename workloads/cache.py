"""Directories in the user's cache for data and compiled code. Imports no torch."""

import os
import tempfile
from pathlib import Path

COMPILED = "TORCHINDUCTOR_CACHE_DIR"


def cache_directory() -> Path:
    """Return gpudash's directory in the user's cache. Raises RuntimeError without a home."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "gpudash"


def data_directory() -> Path:
    """Return the directory for generated data: GPUDASH_DATA, or the user's cache."""
    if chosen := os.environ.get("GPUDASH_DATA"):
        return Path(chosen)
    return cache_directory()


def compiled_directory() -> Path:
    """Return the directory for torch's compiled code: the user's choice, or the user's cache."""
    if chosen := os.environ.get(COMPILED):
        return Path(chosen)
    return cache_directory() / "inductor"


def keep_compiled_code(scratch: str | None = None) -> None:
    """Let torch keep compiled code in the user's cache instead of the temporary files.

    Compilers' own temporary files go to `scratch`, a directory that is removed with this process: a
    killed compiler leaves them behind.

    Call this before a step: torch makes the directory with the first optimizer, compiling or not. A
    directory chosen by the user is kept. If the cache cannot be written to, torch chooses.
    """
    if scratch is not None:
        tempfile.gettempdir()  # Python remembers the usual folder, where torch keeps headers
        os.environ["TMPDIR"] = scratch
    if os.environ.get(COMPILED):
        return
    try:
        directory = compiled_directory()
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return
    if os.access(directory, os.W_OK):
        os.environ[COMPILED] = str(directory)
