"""PPO in mazes: each move is rewarded by how much nearer the exit is, found by a search."""

from collections import deque

import numpy as np
import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

SIDE, MAZES, MOVES, EPOCHS = (16, 16, 16, 4) if ON_GPU else (8, 4, 8, 2)
STEPS = ((0, 1), (1, 0), (0, -1), (-1, 0))


class Maze:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.walls = self.rng.random((SIDE, SIDE)) < 0.2
        self.walls[0, 0] = self.walls[-1, -1] = False
        self.known = {}
        self.reset()

    def reset(self):
        self.at = (0, 0)
        self.away = self.distance(self.at)

    def distance(self, start):
        if not PLANT and start in self.known:
            return self.known[start]
        found = self.known[start] = self.search(start)
        return found

    def search(self, start):
        queue, seen = deque([(start, 0)]), {start}
        while queue:
            (row, column), moves = queue.popleft()
            if row == column == SIDE - 1:
                return moves
            for down, right in STEPS:
                there = row + down, column + right
                if there not in seen and self.is_free(there):
                    seen.add(there)
                    queue.append((there, moves + 1))
        return SIDE * SIDE

    def is_free(self, place):
        row, column = place
        return 0 <= row < SIDE and 0 <= column < SIDE and not self.walls[row, column]

    def move(self, action):
        down, right = STEPS[action]
        there = self.at[0] + down, self.at[1] + right
        if self.is_free(there):
            self.at = there
        before, self.away = self.away, self.distance(self.at)
        reward = float(before - self.away)
        if not self.away:
            self.reset()
        return reward

    def view(self):
        seen = np.zeros((2, SIDE, SIDE), np.float32)
        seen[0], seen[1][self.at] = self.walls, 1.0
        return seen


def network():
    return nn.Sequential(
        nn.Conv2d(2, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * SIDE * SIDE, 256),
        nn.ReLU(),
        nn.Linear(256, 5),
    )


def play(model, mazes):
    views, actions, chances, rewards = [], [], [], []
    for _ in range(MOVES):
        seen = torch.from_numpy(np.stack([maze.view() for maze in mazes])).to(DEVICE)
        with torch.no_grad():
            policy = torch.distributions.Categorical(logits=model(seen)[:, :4])
        action = policy.sample()
        chances.append(policy.log_prob(action))
        moves = zip(mazes, action.tolist(), strict=True)
        rewards.append([maze.move(one) for maze, one in moves])
        views.append(seen)
        actions.append(action)
    return (torch.cat(views), torch.cat(actions), torch.cat(chances)), torch.tensor(
        rewards
    ).flatten()


def loss_of(model, views, actions, chances, rewards):
    scores = model(views)
    policy = torch.distributions.Categorical(logits=scores[:, :4])
    gain = rewards - scores[:, 4].detach()
    ratio = (policy.log_prob(actions) - chances).exp()
    clipped = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain)
    return (
        nn.functional.mse_loss(scores[:, 4], rewards)
        - clipped.mean()
        - 0.01 * policy.entropy().mean()
    )


def main():
    torch.manual_seed(0)
    model = network().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    mazes = [Maze(seed) for seed in range(MAZES)]
    clock = Stopwatch(period=EPOCHS)
    while clock.runs:
        played, rewards = play(model, mazes)
        rewards = rewards.to(DEVICE)
        for _ in range(EPOCHS):
            loss = loss_of(model, *played, rewards)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.step()


if __name__ == "__main__":
    main()
