"""A rendezvous of torchrun's whose store listens on the loopback address alone.

torchrun's own one listens on all addresses, and whoever reaches that store can write into it.
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


class Loopback(RendezvousHandler):
    """All ranks are of one machine, and of one torchrun: nobody is waited for."""

    def __init__(self, run_id: str) -> None:
        """`run_id` is the run's name. Raises OSError where no socket can be had."""
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
        """Return its name."""
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        """Whether the ranks use this store, and make none of their own."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Return where the ranks meet."""
        return RendezvousInfo(self._store, 0, 1, RendezvousStoreInfo(ADDRESS, self._port))

    def is_closed(self) -> bool:
        """Tell whether nobody may join any more."""
        return False

    def set_closed(self) -> None:
        """Nobody else would join."""

    def num_nodes_waiting(self) -> int:
        """Return how many other machines want to join."""
        return 0

    def get_run_id(self) -> str:
        """Return which run it is, as torchrun names it."""
        return self._run_id

    def shutdown(self) -> bool:
        """Tell whether it has ended: it does with this process."""
        return True


def register() -> None:
    """Let torchrun know it by its name."""

    def made(parameters: RendezvousParameters) -> Loopback:
        return Loopback(parameters.run_id)

    rendezvous_handler_registry.register(BACKEND, made)
