"""A rendezvous for torchrun whose store listens on the loopback address only.

torchrun's own store listens on all addresses, and anyone who reaches it can write into it.
"""

import socket

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # documented, not declared
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

BACKEND = "loopback"
"""As torchrun's option `--rdzv-backend` names it."""
ADDRESS = "127.0.0.1"


class _Loopback(RendezvousHandler):
    """The rendezvous of one machine and one torchrun: it waits for no other node."""

    def __init__(self, run_id: str) -> None:
        """Raise OSError if there is no free port."""
        self._run_id = run_id
        listener = socket.create_server((ADDRESS, 0))
        self._port = listener.getsockname()[1]
        self._store = TCPStore(
            ADDRESS,
            self._port,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),  # the store closes it
        )

    def get_backend(self) -> str:
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        return RendezvousInfo(self._store, 0, 1, RendezvousStoreInfo(ADDRESS, self._port))

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None: ...

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        """Return True: the store ends with this process."""
        return True


def register() -> None:
    def made(parameters: RendezvousParameters) -> _Loopback:
        return _Loopback(parameters.run_id)

    rendezvous_handler_registry.register(BACKEND, made)
