"""The base of the random datasets: their length, and a generator for every sample."""

import torch

from workloads.workload import Samples

DATASET_SIZE = 1_000_000


class RandomSamples(Samples):
    """Random samples, each from its own generator, so that sample i is the same every time."""

    def __init__(self, image_size: int, seed: int) -> None:
        self._image_size = image_size
        self._seed = seed

    def __len__(self) -> int:
        return DATASET_SIZE

    def generator(self, index: int) -> torch.Generator:
        """Return the seeded generator of sample `index`."""
        return torch.Generator().manual_seed(self._seed * DATASET_SIZE + index)
