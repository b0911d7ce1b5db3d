"""Serve the current values to whoever scrapes them, as Prometheus does.

Each reader has a thread of its own for some seconds at most, so one that hangs blocks nobody.
"""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import ThreadingHTTPServer
from time import monotonic as now_s
from typing import Any

from gpudash.addresses import resolved, to_listen, why_not
from gpudash.errors import RecordingError, UsageError
from gpudash.protocol.envelope import Envelope
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from gpudash.sinks.current import Current, Family
from gpudash.sinks.sink import Sink
from gpudash.views.time_breakdown import TimeBreakdown

try:
    from prometheus_client import CollectorRegistry, Metric, MetricsHandler
    from prometheus_client.registry import Collector
except ImportError as error:
    raise UsageError(
        "--to prometheus needs prometheus-client: install gpudash[prometheus]"
    ) from error

PATIENCE_S = 5.0
"""Seconds that a reader has in all, for its question and the answer."""
MOST_READERS = 32
"""Readers at once; where another one comes, the oldest gives way."""
VALID = "[HOST:]PORT, as 9742; without a host, only this machine reaches it"


class Prometheus(Sink):
    """Serves `/metrics` from its begin to its end."""

    every_step, every_reading = False, True

    def __init__(self, target: str, origin: Origin, /, *, force: bool = False) -> None:
        """Listen on `[HOST:]PORT`; nothing is overwritten. Raises UsageError, RecordingError."""
        del force
        address = to_listen(target, "--to prometheus:", VALID, least=1)
        self._current, self._lock = Current(origin), threading.Lock()
        try:
            self._server = _Server(*resolved(address)[0], _Current(self._families))
        except OSError as error:
            raise RecordingError(
                f"cannot listen on {address}: {why_not(error).lower()}; valid: {VALID}"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="gpudash-scrapes", daemon=True
        )
        self._thread.start()

    def take(self, item: Envelope | Interval, /) -> None:
        with self._lock:
            self._current.take(item)

    def close(self, _account: TimeBreakdown | None, /) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _families(self) -> list[Family]:
        with self._lock:
            return self._current.families(now_s())


class _Current(Collector):
    """What is current, as the library's families."""

    def __init__(self, families: Any) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for of, points in self._families():
            kind = "info" if of.text else "counter" if of.is_counter else "gauge"
            name = of.name.replace(".", "_").removesuffix("_info")
            family = Metric(name, of.help, kind, of.unit.word)
            for labels, value, _ in points:
                named = {label.replace(".", "_"): text for label, text in labels}
                family.add_sample(of.sample, named, value)
            yield family


class _Server(ThreadingHTTPServer):
    block_on_close = False
    request_queue_size = MOST_READERS

    def __init__(self, family: socket.AddressFamily, place: Any, current: Collector) -> None:
        self.address_family = family
        self._readers: dict[socket.socket, float] = {}  # since when, the oldest first
        registry = CollectorRegistry()
        registry.register(current)
        super().__init__(place, MetricsHandler.factory(registry))

    def server_bind(self) -> None:
        """Bind without a look for the host's name, which may take seconds."""
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._readers[request] = now_s()
        self._let_go(len(self._readers) - MOST_READERS)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        oldest_s = now_s() - PATIENCE_S
        self._let_go(sum(since_s < oldest_s for since_s in list(self._readers.values())))

    def shutdown_request(self, request: Any) -> None:
        self._readers.pop(request, None)
        super().shutdown_request(request)

    def _let_go(self, count: int) -> None:
        for reader in list(self._readers)[: max(count, 0)]:
            with suppress(OSError):  # it has just gone
                reader.shutdown(socket.SHUT_RDWR)  # its thread reads an end

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: it is a reader that has gone."""
