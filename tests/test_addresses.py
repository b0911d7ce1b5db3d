"""Valid values of `--listen` and `--connect`."""

import pytest

from gpudash.addresses import Address, to_connect, to_listen
from gpudash.errors import UsageError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("7070", "127.0.0.1", 7070),
        (":7070", "127.0.0.1", 7070),
        ("0", "127.0.0.1", 0),
        ("gpu1:7070", "gpu1", 7070),
        ("0.0.0.0:65535", "0.0.0.0", 65535),
        ("[::1]:7070", "::1", 7070),
    ],
)
def test_addresses_to_listen_on(text, host, port):
    assert to_listen(text) == Address(host, port)


@pytest.mark.parametrize("text", ["", "gpu1", "gpu1:", "65536", "-1", "7x", "gpu1:7070:x", "٣"])
def test_invalid_addresses_to_listen_on_are_refused(text):
    with pytest.raises(UsageError, match=r"--listen .* is not valid; valid: \[HOST:\]PORT"):
        to_listen(text)


def test_addresses_to_connect_to():
    assert to_connect("gpu1:7070") == Address("gpu1", 7070)
    assert str(to_connect("[::1]:7070")) == "[::1]:7070"


@pytest.mark.parametrize("text", ["", "7070", ":7070", "gpu1", "gpu1:0", "gpu1:65536", "gpu1:\x1b"])
def test_invalid_addresses_to_connect_to_are_refused(text):
    with pytest.raises(UsageError, match="--connect .*is not valid; valid: HOST:PORT"):
        to_connect(text)
