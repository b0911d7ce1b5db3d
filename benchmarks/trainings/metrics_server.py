"""Sends each step's metrics to a server and waits until it has them."""

import json
import multiprocessing
import socket
import time

import torch
from stopwatch import DEVICE, PLANT, Stopwatch
from torch import nn

EVERY = 1 if PLANT else 200
ANSWER_S = 0.01


def serve(listener):
    """Stands for a server some way off."""
    connection, _ = listener.accept()
    while connection.recv(4096):
        time.sleep(ANSWER_S)
        connection.sendall(b"ok\n")


def connected():
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    server = multiprocessing.get_context("fork").Process(
        target=serve, args=(listener,), daemon=True
    )
    server.start()
    listener.close()
    return socket.create_connection(address)


class Metrics:
    def __init__(self):
        self.socket = connected()

    def send(self, step, **values):
        self.socket.sendall(json.dumps({"step": step, **values}).encode() + b"\n")
        answer = self.socket.recv(16)
        assert answer == b"ok\n"


def main():
    metrics = Metrics()
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 1)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = torch.randn(256, 64, device=DEVICE)
    clock = Stopwatch()
    step = 0
    while clock.runs:
        loss = nn.functional.mse_loss(model(rows), rows[:, :1].sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVERY == 0:
            metrics.send(step, rate=0.01)
        step += 1
        clock.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
