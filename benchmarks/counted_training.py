"""A small training with one planted change, for `bench_counts.py`.

    python benchmarks/counted_training.py plain item --device cuda

It logs its loss now and then, as scripts do.
"""

import argparse
from collections.abc import Callable
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

LOGS_EVERY = 25
WIDTH, CLASSES, ROWS = 64, 10, 32
BASES = {
    "plain": (
        *("item", "clone", "operator", "nonzero", "norm", "second forward", "not fused", "stack"),
        *("contiguous", "dropout"),
    ),
    "compiled": ("graph break", "two breaks", "operator", "recompile"),
    "collective": ("each micro-batch", "of the loss", "broadcast", "gathered"),
    "memory": ("retained graph", "kept", "pageable", "empty cache"),
}
"""Scripts, and what is planted in each; those of memory need a GPU."""


uncompiled: Callable[[], None] = torch.compiler.disable(lambda: None)  # type: ignore[no-untyped-call]
"""Breaks the graph."""


class Net(nn.Module):
    """A small network, with changes in its forward pass."""

    def __init__(self, plant: str) -> None:
        super().__init__()
        self.plant = plant
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        match self.plant:
            case "graph break":
                uncompiled()
            case "two breaks":
                uncompiled()
                x = x * 2
                uncompiled()
            case "operator":
                x = x + 1
            case "dropout":
                x = functional.dropout(x, 0.1)
        found: Tensor = self.last(x)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", choices=BASES)
    parser.add_argument("plant", nargs="?", default="")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if asked.base == "collective":
        with TemporaryDirectory() as folder:
            meeting = f"file://{folder}/meeting"
            distributed.init_process_group("gloo", meeting, rank=0, world_size=1)
    train(asked.base, asked.plant, torch.device(asked.device))


def train(base: str, plant: str, device: torch.device) -> None:
    net = Net(plant).to(device)
    model: nn.Module = net
    if base == "compiled":
        net.compile(backend="eager")
    if base == "collective":
        model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9,
                                foreach=plant != "not fused")  # fmt: skip
    rows = TensorDataset(torch.randn(512, WIDTH), torch.randint(0, CLASSES, (512,)))
    batches = DataLoader(rows, batch_size=ROWS, shuffle=True, pin_memory=device.type == "cuda"
                         and plant != "pageable")  # fmt: skip
    kept: list[Tensor] = []
    steps = 0
    while True:
        for inputs, targets in batches:
            x = inputs.to(device, non_blocking=True)
            y = targets.to(device, non_blocking=True)
            optimizer.zero_grad()
            loss = step(base, plant, model, x, y)
            if plant == "norm":
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            if plant == "retained graph":
                kept = [*kept, loss][-50:]
            if plant == "kept" and not kept:
                kept = [torch.zeros(2**24, device=device)]
            if plant == "empty cache":
                torch.cuda.empty_cache()
            optimizer.step()
            steps += 1
            if steps % LOGS_EVERY == 0:
                loss.item()


def step(base: str, plant: str, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    if base == "collective":
        parts = list(zip(x.chunk(2), y.chunk(2), strict=True))
        for at, (some, right) in enumerate(parts):
            whole = at == len(parts) - 1 or plant == "each micro-batch"
            model.require_backward_grad_sync = whole  # type: ignore[assignment]
            loss = functional.cross_entropy(model(some), right)
            torch.autograd.backward(loss)
    else:
        if plant == "recompile":
            torch.compiler.reset()
        loss = functional.cross_entropy(model(x), y)
        torch.autograd.backward(loss, retain_graph=plant == "retained graph")
    others(plant, model, x, loss)
    return loss


def others(plant: str, model: nn.Module, x: Tensor, loss: Tensor) -> None:
    """Do what is planted beside a step."""
    match plant:
        case "item":
            loss.item()
        case "clone":
            x.clone()
        case "nonzero":
            (x > 0).nonzero()
        case "second forward":
            with torch.no_grad():
                model(x)
        case "stack":
            torch.stack([x, x])
        case "contiguous":
            x.t().contiguous()
        case "of the loss":
            distributed.all_reduce(loss.detach())
        case "broadcast":
            distributed.broadcast(x, 0)
        case "gathered":
            distributed.all_gather([torch.empty_like(x)], x)


if __name__ == "__main__":
    main()
