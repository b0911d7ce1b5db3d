"""What tests of loaders share."""

import gc
import multiprocessing
from weakref import WeakKeyDictionary

import pytest
from torch.utils.data.dataloader import _BaseDataLoaderIter


@pytest.fixture
def redirects(monkeypatch):
    """Redirect iterators' `next` as the tracker does; no loader worker is left afterwards."""
    found, own = WeakKeyDictionary(), _BaseDataLoaderIter.__next__

    def answer(iterator):
        return found.get(iterator, own.__get__(iterator))()

    monkeypatch.setattr(_BaseDataLoaderIter, "__next__", answer)
    yield found
    gc.collect()
    assert not multiprocessing.active_children()
