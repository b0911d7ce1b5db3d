"""Finds the DataLoader that feeds the training."""

import weakref
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils.weak import WeakIdKeyDictionary

from ..levers.training_objects import Feed
from .interruptions import Interruptions
from .samples import bytes_of


class Loaders:
    """Follows the iterators of all DataLoaders, and picks the one that is trained on."""

    def __init__(self) -> None:
        self.feed: Feed | None = None
        self.foreign = ""
        """The library of a loader that is not PyTorch's, but uses its iterators; empty: none."""
        self._loaders: WeakKeyDictionary[Any, tuple[int, weakref.ref[Any]]] = WeakKeyDictionary()
        self._numbers: Any = WeakIdKeyDictionary()  # of the loaders
        self._loaders_seen = 0
        self._opened: Any = None  # the newest loader, until its first batch or its iterator's end
        self._opened_for: weakref.ref[Any] | None = None
        self._kept: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._is_renewed = False  # another loader has taken its place
        self._passed_over: Feed | None = None  # it may be an evaluation's, or another training's

    def opened(self, iterator: Any, loader: Any, *, keeps: bool) -> None:
        """Keep the iterator's loader alive until its first batch, if `keeps`."""
        self._loaders[iterator] = self._number(loader), weakref.ref(loader)
        self._opened = loader if keeps else None
        self._opened_for = weakref.ref(iterator, self._release)

    def _release(self, iterator: weakref.ref[Any]) -> None:
        """Release the loader: its iterator is gone. Another thread may have used it up."""
        if iterator is self._opened_for:
            self._opened = None

    def is_of(self, iterator: Any) -> bool:
        return self.feed is not None and self.feed.iterator() is iterator

    def loader_id(self, iterator: Any) -> int:
        """Return the number of the iterator's loader, or the iterator's id if that is not known."""
        known = self._loaders.get(iterator)
        return id(iterator) if known is None else known[0]

    def note(self, iterator: Any, asides: Interruptions, batch: Any) -> bool:
        """Return whether the feed has another loader now. Call it at an iterator's first batch."""
        known = self._loaders.get(iterator)
        opened, self._opened = None if known is None else known[1](), None
        if opened is None or asides.why is not None:
            return False
        feeding = self.feed.loader() if self.feed is not None else None
        if feeding is not None and feeding is not opened:
            trained_on, number = asides.is_trained_on, self._number
            # evaluation between epochs must not replace the feed
            if trained_on(number(feeding)) and (self.is_fed() or not trained_on(number(opened))):
                self._passed_over = Feed(opened, iterator, bytes_of(batch))
                return False
        is_new = feeding is not opened
        self._is_renewed |= is_new and self.feed is not None
        if self.feed is None or is_new:
            self.feed = Feed(opened, iterator, bytes_of(batch))
        else:
            self.feed.iterator = weakref.ref(iterator)
        if all(value is not iterator for value in vars(opened).values()):
            self._kept[iterator] = opened  # `for batch in DataLoader(…)` keeps no loader
        return is_new

    def begin_anew(self) -> None:
        passed, self._passed_over = self._passed_over, None
        if passed is not None and passed.iterator() is not None:
            self.feed = passed

    def is_fed(self) -> bool:
        return self.feed is not None and self.feed.iterator() is not None

    @property
    def stays(self) -> bool:
        """The loader is there between epochs, and has always been the same."""
        return self.feed is not None and self.feed.loader() is not None and not self._is_renewed

    def _number(self, loader: Any) -> int:
        """Return the loader's number, which is never reused: an `id` can be."""
        if loader not in self._numbers:
            self._loaders_seen += 1
            self._numbers[loader] = self._loaders_seen
        number: int = self._numbers[loader]
        return number
