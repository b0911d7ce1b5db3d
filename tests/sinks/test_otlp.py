"""A collector gets what OpenTelemetry's own schema describes, and may come and go."""

import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, repeat
from pathlib import Path

import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint

from gpudash.errors import RecordingError, UsageError
from gpudash.sinks import otlp
from gpudash.sinks.otlp import EVERY_S, Otlp
from tests.sinks.exporting import BEGAN_UTC, ORIGIN, answer, exported, h200, row
from tests.waiting import free_port

ROWS = int(EVERY_S / 0.5)
"""In the time between two messages."""


class Collector:
    """Keeps what it is sent."""

    def __init__(self, port: int = 0) -> None:
        self.got: list[ExportMetricsServiceRequest] = []
        self.answers = 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["Content-Type"] == "application/json"
                if self.path == "/v1/metrics":
                    collector.got.append(Parse(body, ExportMetricsServiceRequest()))
                self.send_response(collector.answers)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def metrics(self, number: int = -1) -> dict[str, Metric]:
        (resource,) = self.got[number].resource_metrics
        (scope,) = resource.scope_metrics
        return {one.name: one for one in scope.metrics}


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.stop()


def point(metric: Metric) -> NumberDataPoint:
    (found,) = (metric.sum if metric.HasField("sum") else metric.gauge).data_points
    return found


def test_a_message_is_one_of_the_schema_with_names_units_and_times(collector: Collector) -> None:
    sink = Otlp(collector.address, ORIGIN)
    sink.take(answer())
    sink.take(row(0))
    (message,) = collector.got
    (resource,) = message.resource_metrics
    about = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert about["service.name"] == "gpudash"
    assert about["host.name"] == "node7"
    found = collector.metrics()
    steps = found["gpudash.steps"]
    assert (found["gpudash.samples"].unit, steps.sum.is_monotonic) == ("{sample}", True)
    assert steps.sum.aggregation_temporality == 2
    began_ns = int(BEGAN_UTC.timestamp() * 1e9)
    assert point(steps).as_double == 5
    assert point(steps).start_time_unix_nano == began_ns
    assert point(steps).time_unix_nano == began_ns + 500_000_000
    power = found["hw.power"]
    assert (power.unit, point(power).as_double) == ("W", 300)
    labels = {one.key: one.value.string_value for one in point(power).attributes}
    assert labels == {"hw.id": "GPU-1111", "hw.name": "GPU 0", "hw.type": "gpu"}
    assert found["hw.energy"].sum.is_monotonic
    memory = found["hw.gpu.memory.usage"]
    assert (memory.unit, memory.sum.is_monotonic, point(memory).as_double) == ("By", False, 2**30)
    assert found["gpudash.limit.info"].gauge.data_points[0].as_double == 1
    sink.abandon()


def test_messages_are_some_seconds_apart_and_one_is_sent_at_the_end(collector: Collector) -> None:
    sink = Otlp(collector.address, ORIGIN)
    for number in range(2 * ROWS):
        sink.take(row(number))
    assert len(collector.got) == 2
    sink.close(None)
    assert point(collector.metrics()["gpudash.steps"]).as_double == 2 * ROWS * 5


def test_a_collector_that_goes_is_told_once_and_has_everything_when_it_is_back(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "RESTS_S", 0.0)
    sink = Otlp(collector.address, ORIGIN)
    sink.take(row(0))
    collector.answers = 503
    with pytest.raises(RecordingError, match="otlp: 127.0.0.1:.* takes nothing: it answers 503"):
        sink.take(row(ROWS))
    sink.take(row(2 * ROWS))  # no second notice
    collector.answers = 200
    sink.take(row(3 * ROWS))
    assert point(collector.metrics()["gpudash.steps"]).as_double == 20
    collector.answers = 503
    with pytest.raises(RecordingError):
        sink.take(row(4 * ROWS))
    assert not sink.failed


def test_a_collector_that_is_away_is_not_asked_at_every_row() -> None:
    collector = Collector()
    sink = Otlp(collector.address, ORIGIN)
    collector.stop()
    with pytest.raises(RecordingError, match="takes nothing: connection refused"):
        sink.take(row(0))
    again = Collector(collector.server.server_port)
    sink.take(row(ROWS))
    assert again.got == []
    sink.close(None)
    assert len(again.got) == 1
    again.stop()


class Talker:
    """Accepts connections, and answers each with pieces until it hangs up or nobody listens."""

    def __init__(self, pieces: Iterable[bytes], every_s: float = 0.0) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.server.getsockname()[1]}"
        self.said = 0
        self.pieces, self.every_s = pieces, every_s
        self.thread = threading.Thread(target=self.talk)
        self.thread.start()

    def talk(self) -> None:
        self.server.accept()[0].close()  # that of the sink's begin
        connection, _ = self.server.accept()
        with connection, suppress(OSError):
            asked = b""
            while not asked.endswith(b"}"):
                asked += connection.recv(1 << 16)
            for piece in self.pieces:
                connection.sendall(piece)
                self.said += len(piece)
                time.sleep(self.every_s)

    def stop(self) -> None:
        self.thread.join()
        self.server.close()


def why_not(talker: Talker) -> str:
    """What the sink says of a collector that answers so; empty if it takes what is sent."""
    try:
        Otlp(talker.address, ORIGIN).take(row(0))
    except RecordingError as error:
        return str(error)
    else:
        return ""
    finally:
        talker.stop()


@pytest.mark.parametrize("piece", [b"", b"x"])
def test_one_that_says_nothing_or_a_byte_at_a_time_is_given_up(
    monkeypatch: pytest.MonkeyPatch, piece: bytes
) -> None:
    monkeypatch.setattr(otlp, "PATIENCE_S", 0.2)
    talker = Talker(repeat(piece, 20), every_s=0.05)
    assert why_not(talker).endswith(" takes nothing: it does not answer")


def test_the_status_is_all_that_is_read_of_an_answer() -> None:
    endless = Talker(chain([b"HTTP/1.1 200 OK\r\n\r\n"], repeat(b"x" * (1 << 20), 50)))
    assert why_not(endless) == ""
    assert endless.said < 50 << 20


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 400 + b"\r\n\r\nx", ""),
        (b"HTTP/1.1 503 No\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", "it answers 503"),
        (b"HTTP/1.1 200 " + b"x" * (1 << 20), ""),
        (b"x" * (1 << 20), "its answer is not HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "its answer is not HTTP"),
        (b"", "it hung up without an answer"),
    ],
)
def test_whatever_is_answered_is_one_line(said: bytes, why: str) -> None:
    told = why_not(Talker([said]))
    assert why in told
    assert bool(why) == bool(told)


def test_what_is_no_address_is_refused_and_one_where_nobody_listens_is_one_line() -> None:
    with pytest.raises(UsageError, match="--to otlp:4318 is not valid; valid: HOST:PORT"):
        Otlp("4318", ORIGIN)
    port = free_port()
    with pytest.raises(RecordingError) as raised:
        Otlp(f"127.0.0.1:{port}", ORIGIN)
    assert str(raised.value).startswith(
        f"cannot send to 127.0.0.1:{port}: connection refused; valid: HOST:PORT of a collector"
    )
    with pytest.raises(RecordingError, match=r"cannot send to nowhere\.invalid:4318: "):
        Otlp("nowhere.invalid:4318", ORIGIN)


def test_a_training_on_an_h200_is_sent_whole(collector: Collector, tmp_path: Path) -> None:
    exported(h200(tmp_path), f"otlp:{collector.address}")
    found = collector.metrics()
    assert point(found["gpudash.steps"]).as_double == 234
    assert {"hw.energy", "hw.gpu.utilization", "gpudash.pipe_tensor_active"} <= set(found)
