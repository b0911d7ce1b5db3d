"""Make JPEG files in folders, one a class, as torchvision's ImageFolder takes them.

    python benchmarks/own_training/jpegs.py /tmp/jpegs --pictures 2000 --size 400

Each is a photograph's worth of decoding: smooth waves whose direction is the class, edges and
noise, quality 90. A picture is drawn by its number: the files are the same wherever they are made.
With `--times 10` each file of the training is there under ten names: an epoch is ten times as long.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = 10
SPLITS = {"train": 0.9, "val": 0.1}


def picture(number: int, size: int) -> Image.Image:
    """Return the picture of this number."""
    random = np.random.default_rng(number)
    y, x = np.mgrid[:size, :size] / size
    angle = np.pi * (number % CLASSES) / CLASSES
    along = x * np.cos(angle) + y * np.sin(angle)
    waves = [np.sin(2 * np.pi * (6 * along * (k + 1) + random.random())) for k in range(3)]
    colours = 127 + 60 * np.stack(waves, axis=-1)
    for _ in range(12):
        left, top = random.integers(0, size, 2)
        width, height = random.integers(size // 16, size // 3, 2)
        colours[top : top + height, left : left + width] += random.normal(0, 40, 3)
    colours += random.normal(0, 10, colours.shape)
    return Image.fromarray(colours.clip(0, 255).astype(np.uint8))


def save(number: int, folder: Path, size: int, times: int) -> None:
    """Save the picture of this number in its class's folder, under so many names."""
    path = folder / f"class{number % CLASSES}" / f"{number:06}.jpg"
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(number, size).save(path, quality=90)
    for name in range(1, times):
        path.with_name(f"{number:06}_{name}.jpg").hardlink_to(path)


def main() -> None:
    """Make what both splits need."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--size", type=int, default=400, help="width and height in pixels")
    parser.add_argument("--times", type=int, default=1, help="names of each training picture")
    arguments = parser.parse_args()
    first = 0
    with ProcessPoolExecutor() as processes:
        for split, share in SPLITS.items():
            numbers = range(first, first := first + round(share * arguments.pictures))
            folder = arguments.folder / split
            times = arguments.times if split == "train" else 1
            make = partial(save, folder=folder, size=arguments.size, times=times)
            list(processes.map(make, numbers, chunksize=16))
            print(f"{len(numbers)} pictures under {times * len(numbers)} names in {folder}")


if __name__ == "__main__":
    main()
