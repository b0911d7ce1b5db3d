"""The JPEG files that `jpeg_input` reads: painted once, and kept in a cache directory.

They must cost as much to decode as photographs: shapes of all sizes, a little grain, quality 90,
colour at half resolution, about 80 KiB. Their content does not matter, so there are few distinct
images, each copied to many paths. All files together fit into the page cache of most machines:
from the second pass on, reading measures the system call and the copy, not the disk.

A path has a whole file or none: files are written under another name and renamed, and the manifest
is written last. If the manifest or files are missing, the missing ones are written. Two processes
may write at once, as their files are the same. The content is not checked here: a file that has
become unreadable is skipped and counted by its reader.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from math import ceil
from pathlib import Path
from uuid import uuid4

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from workloads.cache import data_directory
from workloads.levers import LeverError

HEIGHT, WIDTH = 533, 800  # the source's
FILES = 4096
DISTINCT = 64
"""Number of distinct images among the files."""
FILE_KIB = 80
"""Approximate size of a file."""
QUALITY = 90
VERSION = 1
"""Increment it when the content of the files changes."""

OCTAVES = 9
ROUGHNESS = 0.68
"""Strength of each octave relative to the next coarser one."""


@dataclass(frozen=True)
class JpegFiles:
    """A directory of `count` JPEG files; their names are their numbers."""

    directory: Path
    count: int

    @classmethod
    def cached(cls, count: int) -> "JpegFiles":
        """Return the directory of `count` files in the user's cache, which may not exist yet.

        Raises LeverError if the user has no home directory.
        """
        name = f"jpeg-{WIDTH}x{HEIGHT}-{count}-v{VERSION}"
        try:
            return cls(data_directory() / name, count)
        except RuntimeError as error:
            raise LeverError(
                "jpeg_input: there is no home directory; set GPUDASH_DATA to a writable directory"
            ) from error

    @property
    def paths(self) -> list[Path]:
        """Every file, in order."""
        return [self.directory / f"{number:05}.jpg" for number in range(self.count)]

    @property
    def mib(self) -> int:
        """Approximate size of all files, in MiB."""
        return max(1, self.count * FILE_KIB // 1024)

    def are_whole(self) -> bool:
        """Return whether all files are written. Raises LeverError if that cannot be read."""
        try:
            found = json.loads(self._manifest.read_bytes())
            present = set(self.directory.iterdir())
        except (FileNotFoundError, ValueError):
            return False
        except OSError as error:
            raise self._refusal("read", error) from error
        return bool(found == self._expected) and present.issuperset(self.paths)

    def write(self) -> None:
        """Write the missing files. Raises LeverError if that fails, and removes those written."""
        written: list[Path] = []
        partial = self.directory / f".{uuid4().hex}"  # unique to this process
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            paths = self.paths
            for number, encoded in enumerate(paint_jpegs()):
                for path in paths[number::DISTINCT]:
                    if not path.exists():
                        _put(path, encoded, partial)
                        written.append(path)
            _put(self._manifest, json.dumps(self._expected).encode(), partial)
        except OSError as error:
            _remove(written)
            raise self._refusal("write", error) from error
        finally:
            _remove([partial])

    @property
    def _manifest(self) -> Path:
        return self.directory / "manifest.json"

    @property
    def _expected(self) -> dict[str, int]:
        return {"version": VERSION, "files": self.count, "height": HEIGHT, "width": WIDTH}

    def _refusal(self, verb: str, error: OSError) -> LeverError:
        return LeverError(
            f"jpeg_input: cannot {verb} {self.directory}: {error.strerror}; "
            f"set GPUDASH_DATA to a writable directory with about {self.mib} MiB free"
        )


def paint_jpegs() -> Iterator[bytes]:
    """Yield the distinct JPEG files: views of one canvas of twice their height and width."""
    canvas = paint(2 * HEIGHT, 2 * WIDTH)
    for number in range(DISTINCT):
        top, left = number * HEIGHT // DISTINCT, number * WIDTH // DISTINCT
        view = canvas[:, top : top + HEIGHT, left : left + WIDTH]
        file = BytesIO()
        Image.fromarray(view.permute(1, 2, 0).numpy()).save(file, "JPEG", quality=QUALITY)
        yield file.getvalue()


def paint(height: int, width: int) -> Tensor:
    """Return (3, height, width) uint8: noise of all sizes, fainter where it is finer."""
    generator = torch.Generator().manual_seed(VERSION)
    image = torch.full((1, 3, 1, 1), 128.0)
    strength = 180.0
    for octave in reversed(range(OCTAVES)):
        size = ceil(height / 2**octave), ceil(width / 2**octave)
        image = interpolate(image, size=size, mode="bilinear")
        grey = torch.rand(1, 1, *size, generator=generator) - 0.5
        colour = torch.rand(1, 3, *size, generator=generator) - 0.5
        image += strength * (grey + 0.3 * colour)
        strength *= ROUGHNESS
    return image[0].clamp(0, 255).to(torch.uint8)


def _put(path: Path, content: bytes, partial: Path) -> None:
    """Write a file under the name `partial`, then rename it to `path`."""
    partial.write_bytes(content)
    partial.replace(path)


def _remove(paths: list[Path]) -> None:
    """Remove files, ignoring errors: the error that led here is the one to report."""
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)
