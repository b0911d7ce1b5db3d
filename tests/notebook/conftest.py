"""Notebooks of a test, in a place of their own."""

import pytest

from tests.notebook.notebooks import Notebook


@pytest.fixture
def place(tmp_path_factory, monkeypatch):
    """Return the folder that holds the runs' directories."""
    folder = tmp_path_factory.mktemp("r", numbered=True)
    monkeypatch.setenv("GPUDASH_RUN_DIR", str(folder))
    return folder


@pytest.fixture
def notebook(place, tmp_path, with_torch):
    """Return a function that opens a notebook; all are closed at the end.

    Its Python has torch from its start, unless it is `sys.executable`.
    """
    opened = []

    def open_one(name="train.ipynb", python=with_torch / "bin" / "python", **environment):
        opened.append(Notebook(python, tmp_path, name, **environment))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()
