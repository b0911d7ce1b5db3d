"""One of torchrun's processes: trains until a file is there, then compares the ranks' weights.

`--too-many N`: with so many loader workers, those of rank 1 fail.
"""

import argparse
import time
from pathlib import Path

from gpudash import in_training
from gpudash.imports import without_collecting

with without_collecting():
    import torch
    import torch._dynamo  # as the optimizer does
    from torch import distributed, nn
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info

in_training("training.commanded").PATIENCE_S = 10.0
LOOK_EVERY = 16
"""Backward passes; an epoch is a multiple of them."""
PASSES = 2
"""Backward passes of a step."""
STEP_S = 0.03
"""What a step sleeps: two ranks that train all the time take both cores."""
IMAGES, CLASSES, SIDE = 8192, 10, 8


class Images(Dataset):
    """Random images, that too many loader workers cannot make."""

    def __init__(self, too_many):
        # long epochs: CPython 3.11 may hang in a fork beside gloo's threads, one in a thousand
        self._images = torch.randn(IMAGES, 3, SIDE, SIDE)
        self._answers = torch.arange(IMAGES) % CLASSES
        self._too_many = too_many

    def __len__(self):
        return len(self._answers)

    def __getitem__(self, at):
        worker = get_worker_info()
        if worker is not None and worker.num_workers == self._too_many:
            raise OSError("no such file")
        return self._images[at], self._answers[at]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("until", type=Path)
    parser.add_argument("--too-many", type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, CLASSES)
    )
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = Images(arguments.too_many if rank == 1 else None)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    is_over = torch.zeros(())
    epoch = 0
    while not is_over:
        sampler.set_epoch(epoch)
        for number, (images, answers) in enumerate(loader, 1):
            cross_entropy(model(images), answers).backward()
            if number % PASSES == 0:
                optimizer.step()
                optimizer.zero_grad()
                time.sleep(STEP_S)
            if number % LOOK_EVERY == 0:
                is_over.fill_(arguments.until.exists())
                distributed.all_reduce(is_over)
                if is_over:
                    break
        epoch += 1
    weights = torch.cat([one.detach().flatten() for one in model.parameters()])
    of_ranks = [torch.empty_like(weights) for _ in range(distributed.get_world_size())]
    distributed.all_gather(of_ranks, weights)
    if rank == 0:
        equal = all(torch.equal(one, weights) for one in of_ranks)
        print("weights", "equal" if equal else "differ", flush=True)


if __name__ == "__main__":
    main()
    # after DDP is freed: the group's last owner waits for gloo's threads, and if it is DDP it keeps
    # the GIL meanwhile, which they may need to free a tensor of Python's
    distributed.destroy_process_group()
