"""Event sequences as Python lists, padded element by element when a batch is put together."""

import random

import torch
from stopwatch import DEVICE, PLANT, Stopwatch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

EVENTS, BATCH = 500, 64


class Visits(Dataset):
    def __init__(self):
        rng = random.Random(0)
        self.visits = [
            [rng.randrange(1, EVENTS) for _ in range(rng.randint(400, 800))] for _ in range(2000)
        ]

    def __len__(self):
        return len(self.visits)

    def __getitem__(self, at):
        return self.visits[at]


def pad_by_hand(visits):
    longest = max(len(visit) for visit in visits)
    rows = []
    for visit in visits:
        row = []
        for at in range(longest):
            event = visit[at] if at < len(visit) else 0
            row.append(min(max(event, 0), EVENTS - 1))
        rows.append(row)
    return torch.tensor(rows)


def pad_at_once(visits):
    return pad_sequence([torch.tensor(visit) for visit in visits], batch_first=True)


def main():
    torch.manual_seed(0)
    collate = pad_by_hand if PLANT else pad_at_once
    batches = DataLoader(Visits(), batch_size=BATCH, shuffle=True, collate_fn=collate)
    model = nn.Sequential(nn.EmbeddingBag(EVENTS, 32), nn.Linear(32, 2)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    clock = Stopwatch()
    while clock.runs:
        for rows in batches:
            rows = rows.to(DEVICE)
            loss = nn.functional.cross_entropy(model(rows), rows[:, 0] % 2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not clock.step():
                break
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
