"""The training processes of a rendezvous that listen, found as they come."""

import socket
import time
from collections.abc import Collection

from gpudash.rendezvous import Rendezvous

LOOK_S = 1.0
"""How often the directory is looked at where it has not changed: one may not listen so far."""
SETTLED_NS = 50_000_000
"""Of a directory that changed so lately, another change may bear the same time."""


class Arrivals:
    """Connects to each."""

    def __init__(self, place: Rendezvous) -> None:
        self._place = place
        self.marks: dict[str, dict[int, int]] = {}
        """How far which processes came, as the rendezvous tells it."""
        self._changed_ns = -1
        self._look_s = 0.0

    def look(self, known: Collection[object]) -> list[tuple[tuple[int, int], socket.socket]]:
        """Return those that have come: process id and socket's number, and a connection to it."""
        now_s = time.monotonic()
        try:
            changed_ns = self._place.path.stat().st_mtime_ns
            if changed_ns == self._changed_ns and now_s < self._look_s:
                return []
            self.marks = self._place.marks()
        except OSError:  # the run is over
            return []
        is_settled = time.time_ns() - changed_ns > SETTLED_NS
        self._changed_ns, self._look_s = changed_ns if is_settled else -1, now_s + LOOK_S
        found = []
        for key in self.marks.get("sock", {}).items():
            if key in known:
                continue
            connection = socket.socket(socket.AF_UNIX)
            connection.setblocking(False)
            try:
                connection.connect(str(self._place.socket(key[0])))
            except OSError:  # gone, or not listening so far
                connection.close()
                continue
            found.append((key, connection))
        return found
