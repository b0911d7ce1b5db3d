"""What tests of several folders share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_path() -> Iterator[Path]:
    """An empty directory. Its name, unlike tmp_path's, leaves room for a socket's in 107 bytes."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)
