"""Train a small network on random images, with a part of each step wasted on the host if asked."""

import argparse
import time
from statistics import median

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

WARMUP_STEPS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--slower", type=float, default=0.0, help="by so many percent")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.manual_seed(asked.seed)
    device, wide = torch.device(asked.device), 64 if asked.device == "cpu" else 512
    if asked.device == "cpu":
        torch.set_num_threads(1)
    data = TensorDataset(torch.randn(2048, 3, 32, 32), torch.randint(10, (2048,)))
    loader = DataLoader(data, batch_size=wide // 2, shuffle=True, drop_last=True)
    layers = [nn.Conv2d(3, wide, 3, stride=2), nn.ReLU(), nn.Conv2d(wide, wide, 3, stride=2)]
    model = nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)).to(device)
    model(data.tensors[0][:1].to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    steps_s: list[float] = []
    while True:
        began_s = time.perf_counter()
        for images, labels in loader:
            loss = functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # in torch
            optimizer.step()
            loss.item()  # on a GPU, too, the step has ended
            if len(steps_s) < WARMUP_STEPS:
                steps_s.append(time.perf_counter() - began_s)
            _waste(median(steps_s) * asked.slower / 100)
            began_s = time.perf_counter()


def _waste(seconds: float) -> None:
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        pass


if __name__ == "__main__":
    main()
