"""Parse and resolve addresses of the command line: `[HOST:]PORT`, `HOST:PORT`."""

import os
import socket
from typing import Any, NamedTuple

from gpudash.errors import UsageError
from gpudash.format import plain

LOOPBACK = "127.0.0.1"


class Address(NamedTuple):
    """A host's name or IP address, and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return plain(f"{host}:{self.port}")


def to_listen(
    text: str,
    option: str = "--listen ",
    valid: str = "[HOST:]PORT; port 0 is any free one",
    *,
    least: int = 0,
) -> Address:
    """Without a host, only this machine reaches it. Raises UsageError, also below `least`."""
    host, port = _split(text)
    if port is None or port < least:
        raise _wrong(option, text, valid)
    return Address(host or LOOPBACK, port)


def to_connect(text: str, option: str = "--connect ") -> Address:
    host, port = _split(text)
    if not host or not port:
        raise _wrong(option, text, "HOST:PORT")
    return Address(host, port)


def resolved(address: Address) -> list[tuple[socket.AddressFamily, Any]]:
    """May raise OSError."""
    try:
        infos = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(None, "that is no host's name") from error
    return [(info[0], info[4]) for info in infos]


def why_not(error: OSError) -> str:
    if error.errno is not None and error.errno > 0:  # a resolver's own numbers are negative
        return os.strerror(error.errno)
    return str(error.strerror or error)


def _split(text: str) -> tuple[str, int | None]:
    """None if the port is not valid."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):  # an IPv6 address
        host = host[1:-1]
    is_port = port.isascii() and port.isdecimal() and int(port[:6]) < 1 << 16
    return host, int(port) if is_port else None


def _wrong(option: str, text: str, valid: str) -> UsageError:
    return UsageError(plain(f"{option}{text} is not valid; valid: {valid}"))
