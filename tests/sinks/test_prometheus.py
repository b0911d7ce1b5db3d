"""Who scrapes gets the current values, as the parsers of Prometheus's own client read them."""

import socket
import time
from collections.abc import Iterable, Iterator
from http.client import HTTPConnection, HTTPResponse

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_of
from prometheus_client.parser import text_string_to_metric_families as classic_of

from gpudash.errors import RecordingError, UsageError
from gpudash.sinks import prometheus
from gpudash.sinks.prometheus import MOST_READERS, PATIENCE_S, Prometheus
from tests.lives import said
from tests.scripted_run import started
from tests.sinks.exporting import answer, origin, row
from tests.waiting import free_port

OPENMETRICS = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def served(port: int) -> Iterator[Prometheus]:
    """A sink with two rows of the last second."""
    began_s = time.monotonic() - 1.0
    sink = Prometheus(str(port), origin(began_s))
    for item in (said(started(began_s)), answer(), row(0, began_s), row(1, began_s)):
        sink.take(item)
    yield sink
    sink.close(None)


def scrape(port: int, path: str = "/metrics", **headers: str) -> tuple[HTTPResponse, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    return response, response.read().decode()


def samples(families: Iterable[Metric]) -> dict[str, float]:
    """The values by name, with the labels that tell apart what a test has several of."""
    found = {}
    for family in families:
        for one in family.samples:
            phase = one.labels.get("phase")
            found[f"{one.name}{{{phase}}}" if phase else one.name] = one.value
    return found


def test_a_scrape_in_either_format_has_the_same_values(served: Prometheus, port: int) -> None:
    modern, text = scrape(port, **OPENMETRICS)
    assert modern.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    found = samples(openmetrics_of(text))
    assert found["gpudash_steps_total"] == 10
    assert found["gpudash_phase_seconds_total{forward}"] == pytest.approx(0.4)
    assert found["hw_power_watts"] == 300
    classic, text = scrape(port)
    assert classic.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert samples(classic_of(text)) == found


def test_every_family_has_its_type_its_unit_and_what_it_means(
    served: Prometheus, port: int
) -> None:
    families = {one.name: one for one in openmetrics_of(scrape(port, **OPENMETRICS)[1])}
    assert families["gpudash_steps"].type == "counter"
    assert families["gpudash_limit"].type == "info"
    assert (families["hw_energy_joules"].type, families["hw_energy_joules"].unit) == (
        "counter",
        "joules",
    )
    assert all(one.documentation for one in families.values())
    limit = families["gpudash_limit"].samples[0]
    assert limit.labels == {"title": "input-bound", "limit": "data"}


def test_labels_hold_whatever_a_name_holds(served: Prometheus, port: int) -> None:
    odd = 'a"b\\c\nd'
    served.take(answer(title=odd))
    for parse, headers in ((openmetrics_of, OPENMETRICS), (classic_of, {})):
        families = parse(scrape(port, **headers)[1])
        (found,) = (one for one in families if one.name.startswith("gpudash_limit"))
        assert found.samples[0].labels["title"] == odd


def test_old_values_are_no_present_ones(
    served: Prometheus, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    later_s = time.monotonic() + 60
    monkeypatch.setattr(prometheus, "now_s", lambda: later_s)
    found = samples(classic_of(scrape(port)[1]))
    assert "hw_power_watts" not in found
    assert found["gpudash_steps_total"] == 10


def test_readers_that_hang_block_no_other_and_not_the_training(
    served: Prometheus, port: int
) -> None:
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(MOST_READERS - 1)]
    silent[0].sendall(b"GET /metr")
    served.take(row(2))
    assert samples(classic_of(scrape(port)[1]))["gpudash_steps_total"] == 15
    for one in silent:
        one.close()


def test_where_readers_beyond_the_most_come_the_oldest_give_way(
    served: Prometheus, port: int
) -> None:
    """Also such as send a byte now and then: they would never be silent for long."""
    slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(MOST_READERS + 8)]
    for one in slow:
        one.sendall(b"G")
    assert scrape(port)[0].status == 200
    slow[0].settimeout(60)
    assert slow[0].recv(1) == b""
    for one in slow:
        one.close()


def test_a_reader_has_its_seconds_in_all_however_it_spends_them(
    served: Prometheus, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = socket.create_connection(("127.0.0.1", port), timeout=60)
    slow.sendall(b"GET /metr")
    scrape(port)  # by now the slow one is known
    later_s = time.monotonic() + PATIENCE_S
    monkeypatch.setattr(prometheus, "now_s", lambda: later_s)
    assert slow.recv(1) == b""
    slow.close()


def test_at_the_end_nobody_listens(port: int) -> None:
    Prometheus(str(port), origin()).close(None)
    with pytest.raises(ConnectionRefusedError):
        scrape(port)
    Prometheus(str(port), origin()).close(None)


def test_without_a_host_only_this_machine_reaches_it(served: Prometheus, port: int) -> None:
    with socket.socket() as other, pytest.raises(OSError, match="refused"):
        other.connect(("127.0.0.2", port))


@pytest.mark.parametrize("target", ["", "0", "x", "localhost:", "99999", "9400/metrics"])
def test_what_is_no_address_is_refused(target: str) -> None:
    with pytest.raises(UsageError, match=r"--to prometheus:\S* is not valid; valid: \[HOST:\]PORT"):
        Prometheus(target, origin())


def test_a_port_that_is_taken_and_a_host_that_is_not_this_machine_are_one_line(
    served: Prometheus, port: int
) -> None:
    for where, why in (
        (f"127.0.0.1:{port}", "address already in use; valid: "),
        ("192.0.2.1:9400", "cannot assign"),
    ):
        with pytest.raises(RecordingError, match=f"cannot listen on {where}: {why}"):
            Prometheus(where, origin())
