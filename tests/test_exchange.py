"""An exchange is over at its deadline, and its answer is bounded, whatever the other end does."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gpudash.exchange import Exchange
from gpudash.notebook import watching


class Dribbler:
    """Answers with a byte now and then, until its listener hangs up or after seconds."""

    def __init__(self, place: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(place))
        self.listener.listen()
        self.thread = threading.Thread(target=self.talk)
        self.thread.start()

    def talk(self) -> None:
        with self.listener.accept()[0] as connection, suppress(OSError):
            for _ in range(500):
                connection.sendall(b"x")
                time.sleep(0.01)

    def stop(self) -> None:
        self.thread.join()
        self.listener.close()


@pytest.fixture
def dribbler(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / watching.SOCKET
    found = Dribbler(place)
    yield place
    found.stop()


def test_an_answer_that_dribbles_is_over_at_the_deadline(dribbler: Path) -> None:
    with Exchange([(socket.AF_UNIX, str(dribbler))], 0.2) as exchange, pytest.raises(TimeoutError):
        exchange.line()


def test_no_more_is_read_than_was_asked_for(dribbler: Path) -> None:
    with Exchange([(socket.AF_UNIX, str(dribbler))], 20) as exchange:
        assert exchange.line(3) == b"xxx"


def test_a_kernel_waits_no_longer_for_its_watcher(
    dribbler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "ANSWERS_S", 0.2)
    with pytest.raises(TimeoutError):
        watching.ask(dribbler.parent, (0, 0), lambda: None)


def test_whoever_does_not_read_is_given_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "silent"))
        listener.listen()
        exchange = Exchange([(socket.AF_UNIX, str(tmp_path / "silent"))], 0.1)
        with exchange, pytest.raises(TimeoutError):
            exchange.send(b"x" * (16 << 20))


def test_the_second_of_two_addresses_is_tried(dribbler: Path) -> None:
    nowhere = dribbler.with_name("nowhere")
    places = [(socket.AF_UNIX, str(one)) for one in (nowhere, dribbler)]
    with Exchange(places, 20) as exchange:
        assert exchange.line(1) == b"x"
    with pytest.raises(FileNotFoundError):
        Exchange(places[:1], 20)
