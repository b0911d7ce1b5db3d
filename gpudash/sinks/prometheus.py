"""Serve the current values to whoever scrapes them, as Prometheus does.

Each reader has a thread of its own for some seconds at most, so one that hangs blocks nobody.
"""

import socket
import socketserver
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from time import monotonic as now_s
from typing import Any

from gpudash.addresses import resolved, to_listen, why_not
from gpudash.errors import RecordingError
from gpudash.protocol.envelope import Envelope
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from gpudash.sinks.current import Current
from gpudash.sinks.openmetrics import CLASSIC, OPENMETRICS, classic, openmetrics
from gpudash.sinks.sink import Sink
from gpudash.views.time_breakdown import TimeBreakdown

PATH = "/metrics"
PATIENCE_S = 5.0
"""Seconds until a reader that sends or takes nothing is given up."""
MOST_READERS = 32
"""Readers at once; another one is turned away."""
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
            family, place = resolved(address)[0]
            self._server = _Server(family, place, self._scraped)
        except OSError as error:
            raise RecordingError(
                f"cannot listen on {address}: {why_not(error).lower()}; valid: {VALID}"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="gpudash-scrapes", daemon=True
        )
        self._thread.start()

    def take(self, item: Envelope | Interval, /) -> None:
        """Fold a message or a row."""
        with self._lock:
            self._current.take(item)

    def close(self, _account: TimeBreakdown | None, /) -> None:
        """Stop listening: the training is over."""
        self._server.shutdown()
        self._server.server_close()

    def _scraped(self, *, as_openmetrics: bool) -> str:
        with self._lock:
            families = self._current.families(now_s())
        return openmetrics(families) if as_openmetrics else classic(families)


class _Server(socketserver.ThreadingMixIn, HTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = MOST_READERS

    def __init__(self, family: socket.AddressFamily, place: Any, scraped: Any) -> None:
        self.address_family = family
        self.scraped = scraped
        self._free = threading.BoundedSemaphore(MOST_READERS)
        super().__init__(place, _Scrape)

    def server_bind(self) -> None:
        """Bind without a look for the host's name, which may take seconds."""
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread of its own, unless there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: it is a reader that has gone."""


class _Scrape(BaseHTTPRequestHandler):
    timeout = PATIENCE_S
    server: _Server

    def do_GET(self) -> None:
        """Answer with the current values."""
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, explain=f"gpudash serves {PATH}")
            return
        modern = "application/openmetrics-text" in self.headers.get("Accept", "")
        body = self.server.scraped(as_openmetrics=modern).encode()
        self.send_response(200)
        self.send_header("Content-Type", OPENMETRICS if modern else CLASSIC)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the library's name
        """Print nothing: the screen is the dashboard's."""
