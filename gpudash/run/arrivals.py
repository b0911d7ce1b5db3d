"""Find the training processes of a rendezvous as they begin to listen."""

import socket
import time
from collections.abc import Collection

from gpudash.rendezvous import Rendezvous

LOOK_S = 1.0
"""How often an unchanged directory is read: a process may not have listened yet."""
SETTLED_NS = 50_000_000
"""A directory changed more recently than this may change again with the same time stamp."""


class Arrivals:
    """Connects to each training process once."""

    def __init__(self, place: Rendezvous) -> None:
        self._place = place
        self.marks: dict[str, dict[int, int]] = {}
        """Marks that processes have left in the rendezvous, by their kind."""
        self._changed_ns = -1
        self._look_s = 0.0

    def look(self, known: Collection[object]) -> list[tuple[tuple[int, int], socket.socket]]:
        """Return new processes: process id and socket's number, and a connection."""
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
            except OSError:  # gone, or not listening yet
                connection.close()
                continue
            found.append((key, connection))
        return found
