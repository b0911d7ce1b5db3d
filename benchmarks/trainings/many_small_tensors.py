"""Sensor readings come from loader workers as one small tensor for each sensor."""

import torch
from stopwatch import DEVICE, PLANT, Stopwatch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SENSORS, BATCH, WORKERS = 160, 32, 2


class Readings(Dataset):
    """An item is a whole batch already."""

    def __init__(self):
        self.values = torch.randn(64, SENSORS, BATCH, 2)

    def __len__(self):
        return 100_000

    def __getitem__(self, at):
        readings = self.values[at % len(self.values)]
        if not PLANT:
            return {"all": readings.clone()}
        return {f"sensor{one}": values.clone() for one, values in enumerate(readings)}


def joined(batch):
    if not PLANT:
        return batch["all"]
    return torch.stack(list(batch.values()))


def main():
    torch.manual_seed(0)
    batches = DataLoader(Readings(), batch_size=None, num_workers=WORKERS)
    model = nn.Sequential(nn.Linear(2 * SENSORS, 128), nn.ReLU(), nn.Linear(128, 1)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    clock = Stopwatch()
    for batch in batches:
        rows = joined(batch).to(DEVICE).transpose(0, 1).flatten(1)
        loss = nn.functional.mse_loss(model(rows), rows.mean(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not clock.step():
            break
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
