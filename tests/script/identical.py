"""A training that prints its weights' digest and saves its model, with a tracker or without."""

import hashlib
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if sys.argv[1:2] != ["plain"]:
    from tests.script.toy import watched


class Net(nn.Sequential):
    pass


def main(path):
    torch.manual_seed(0)
    model = Net(nn.Linear(8, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    rows = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
    for epoch in range(3):
        fork = {"num_workers": 1, "multiprocessing_context": "fork"} if epoch % 2 else {}
        for x, y in DataLoader(rows, 8, shuffle=True, **fork):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            print(loss.item())
        model.eval()
        with torch.no_grad():
            print(model(rows.tensors[0]).sum().item())
        model.train()
    torch.save(model, path)
    weights = b"".join(one.detach().numpy().tobytes() for one in model.parameters())
    print(hashlib.md5(weights).hexdigest())


def spawned(rank, path):
    toy = watched()
    main("/dev/null")
    Path(f"{path}.{rank}").write_text(f"{toy.tracker.meter.steps} {toy.failures}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    way, path = sys.argv[1:]
    if way == "watched":
        toy = watched()
        main(path)
        print(toy.tracker.meter.steps, toy.failures, file=sys.stderr)
        torch.multiprocessing.spawn(spawned, (path,))
    else:
        main(path)
        print(type(torch.load(f"{path}.watched", weights_only=False)).__name__, file=sys.stderr)
        print("gpudash" in sys.modules, file=sys.stderr)
