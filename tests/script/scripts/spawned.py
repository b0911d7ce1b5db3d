"""Two training processes that the script spawns itself."""

import os
import socket

import torch.multiprocessing
from ranks import train


def worker(rank, port):
    os.environ.update(
        RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    train()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(worker, args=(port,), nprocs=2)
