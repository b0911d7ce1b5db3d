"""Send the current values to an OpenTelemetry collector: OTLP over HTTP, as JSON.

JSON is one of the protocol's two encodings, so no library is needed. Counters are cumulative.
"""

import json
import math
import re
import time
from typing import Any

from gpudash.addresses import resolved, to_connect, why_not
from gpudash.errors import RecordingError
from gpudash.exchange import Exchange
from gpudash.protocol.envelope import Envelope
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from gpudash.sinks.current import Current, Family, wall_s
from gpudash.sinks.exported import Labels
from gpudash.sinks.sink import Sink
from gpudash.views.time_breakdown import TimeBreakdown

PATH = "/v1/metrics"
STATUS = re.compile(rb"HTTP/1\.\d (\d{3})\b")
"""Begins an answer. Nothing else of it is read: what its body says changes nothing."""
EVERY_S = 5.0
"""Seconds of the training between two messages."""
PATIENCE_S = 5.0
"""Seconds until a collector that has not answered is given up …"""
RESTS_S = 30.0
"""… and then tried again: until then values are only counted."""
UP_DOWN = {"hw.gpu.memory.usage", "hw.gpu.memory.limit"}
"""Sums that go up and down by OpenTelemetry's conventions; other gauges are gauges."""
CUMULATIVE = 2
"""AGGREGATION_TEMPORALITY_CUMULATIVE."""


class Otlp(Sink):
    """The user is told once that a collector has gone; once it is back, it gets everything."""

    every_step, every_reading = False, True

    def __init__(self, target: str, origin: Origin, /, *, force: bool = False) -> None:
        """Connect to `HOST:PORT`; nothing is overwritten. Raises UsageError, RecordingError."""
        del force
        self._address = to_connect(target, "--to otlp:")
        self._current, self._origin = Current(origin), origin
        self._due_s, self._retry_s = math.nextafter(origin.began_s, math.inf), 0.0
        self._is_away = False
        try:
            self._places = resolved(self._address)
            with self._connected():
                pass
        except OSError as error:
            raise RecordingError(
                f"cannot send to {self._address}: {_why(error)}; valid: HOST:PORT of a collector "
                "that takes OTLP over HTTP, as localhost:4318"
            ) from error

    def take(self, item: Envelope | Interval, /) -> None:
        self._current.take(item)
        at_s = self._current.at_s
        if at_s >= self._due_s and time.monotonic() >= self._retry_s:
            self._due_s = at_s + EVERY_S
            self._send()

    def close(self, _account: TimeBreakdown | None, /) -> None:
        self._current.end()
        self._send()

    def abandon(self) -> None:
        """Send nothing more."""

    def _send(self) -> None:
        body = json.dumps(self._message()).encode()
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: {self._address}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            with self._connected() as collector:
                collector.send(head.encode() + body)
                why = _why_refused(collector.line())
        except OSError as error:
            why = _why(error)
        was_away, self._is_away = self._is_away, bool(why)
        if why:
            self._retry_s = time.monotonic() + RESTS_S
            if not was_away:
                raise RecordingError(f"otlp: {self._address} takes nothing: {why}")

    def _connected(self) -> Exchange:
        return Exchange(self._places, PATIENCE_S)

    def _message(self) -> dict[str, Any]:
        """Return an ExportMetricsServiceRequest."""
        resource = {
            "service.name": "gpudash",
            "service.version": self._origin.versions.get("gpudash", ""),
            "host.name": self._origin.machine or "",
        }
        metrics = [self._metric(family) for family in self._current.families(self._current.at_s)]
        scope = {"scope": {"name": "gpudash"}, "metrics": metrics}
        held = {"attributes": _attributes(tuple(resource.items()))}
        return {"resourceMetrics": [{"resource": held, "scopeMetrics": [scope]}]}

    def _metric(self, family: Family) -> dict[str, Any]:
        of, points = family
        held: dict[str, Any] = {
            "dataPoints": [
                {
                    "attributes": _attributes(point.labels),
                    "startTimeUnixNano": self._nanoseconds(self._origin.began_s),
                    "timeUnixNano": self._nanoseconds(point.at_s),
                    "asDouble": float(point.value),
                }
                for point in points
            ]
        }
        kind = "sum" if of.is_counter or of.name in UP_DOWN else "gauge"
        if kind == "sum":
            held |= {"aggregationTemporality": CUMULATIVE, "isMonotonic": of.is_counter}
        return {"name": of.name, "description": of.help, "unit": of.unit.ucum, kind: held}

    def _nanoseconds(self, at_s: float) -> str:
        return str(int(wall_s(self._origin, at_s) * 1e6) * 1000)


def _attributes(labels: Labels) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in labels]


def _why_refused(answer: bytes) -> str:
    if not answer:
        return "it hung up without an answer"
    status = STATUS.match(answer)
    if status is None:
        return "its answer is not HTTP"
    return "" if status[1].startswith(b"2") else f"it answers {status[1].decode()} to {PATH}"


def _why(error: OSError) -> str:
    return "it does not answer" if isinstance(error, TimeoutError) else why_not(error).lower()
