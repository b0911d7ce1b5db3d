"""Q-learning from a replay buffer that a thread refills from a slow store."""

import threading
import time

import torch
from stopwatch import DEVICE, PLANT, Stopwatch
from torch import nn

SIZE, SEEN, BATCH = 4096, 32, 128
READ_S = 0.015


class Replay:
    """Transitions, and the thread that brings new ones."""

    def __init__(self):
        self.lock = threading.Lock()
        self.states = torch.randn(SIZE, SEEN)
        self.at = 0
        threading.Thread(target=self.refill, daemon=True).start()

    def refill(self):
        while True:
            if PLANT:
                with self.lock:
                    self.put(self.read())
            else:
                fresh = self.read()
                with self.lock:
                    self.put(fresh)
            time.sleep(0.001)

    def read(self):
        time.sleep(READ_S)  # the store answers
        return torch.randn(64, SEEN)

    def put(self, fresh):
        self.states[self.at : self.at + 64] = fresh
        self.at = (self.at + 64) % SIZE

    def sample(self):
        chosen = torch.randint(SIZE, (BATCH,))
        with self.lock:
            return self.states[chosen]


def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(SEEN, 128), nn.ReLU(), nn.Linear(128, 4)).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    replay = Replay()
    clock = Stopwatch()
    while clock.runs:
        states = replay.sample().to(DEVICE)
        with torch.no_grad():
            wanted = states[:, :4].relu() + 0.9 * net(states).max(1, keepdim=True).values
        loss = nn.functional.smooth_l1_loss(net(states), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
