"""REINFORCE on a pole that must not fall: play with the policy, then update it."""

import numpy as np
import torch
from stopwatch import DEVICE, PLANT, Stopwatch
from torch import nn
from torch.distributions import Categorical

MOVES = 96
GAMES = 1 if PLANT else MOVES


class Poles:
    """Some games beside each other."""

    def __init__(self, games, rng):
        self.rng, self.state = rng, rng.uniform(-0.05, 0.05, (games, 4)).astype(np.float32)

    def step(self, pushes):
        x, v, angle, spin = self.state.T
        force = np.where(pushes == 1, 10.0, -10.0)
        pull = (force + 0.05 * spin**2 * np.sin(angle)) / 1.1
        bend = (9.8 * np.sin(angle) - np.cos(angle) * pull) / (0.667 - 0.045 * np.cos(angle) ** 2)
        speed = pull - 0.045 * bend * np.cos(angle)
        after = (x + 0.02 * v, v + 0.02 * speed, angle + 0.02 * spin, spin + 0.02 * bend)
        self.state = np.stack(after, axis=1).astype(np.float32)
        fell = (np.abs(self.state[:, 2]) > 0.21) | (np.abs(self.state[:, 0]) > 2.4)
        self.state[fell] = self.rng.uniform(-0.05, 0.05, (int(fell.sum()), 4))
        return np.where(fell, -1.0, 1.0).astype(np.float32)


def main():
    rng = np.random.default_rng(0)
    policy = nn.Sequential(nn.Linear(4, 128), nn.Tanh(), nn.Linear(128, 2)).to(DEVICE)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    poles = Poles(GAMES, rng)
    clock = Stopwatch()
    while clock.runs:
        states, moves, rewards = [], [], []
        with torch.no_grad():
            for _ in range(MOVES // GAMES):
                seen = torch.from_numpy(poles.state).to(DEVICE)
                move = Categorical(logits=policy(seen)).sample()
                states.append(seen)
                moves.append(move)
                rewards.append(poles.step(move.cpu().numpy()))
        reward = torch.from_numpy(np.concatenate(rewards)).to(DEVICE)
        chance = Categorical(logits=policy(torch.cat(states))).log_prob(torch.cat(moves))
        loss = -(chance * (reward - reward.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.step()
    print(f"reward {reward.mean().item():.3f}")


if __name__ == "__main__":
    main()
