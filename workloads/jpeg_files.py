"""The JPEG files that `jpeg_input` reads: painted once, kept in a cache directory.

Decoding is what they are for, so they have to cost what photographs cost: shapes of all
sizes, a little grain, quality 90, colour at half resolution, about 80 KiB. Content is not
looked at, so few distinct images will do; every one is copied to many paths. All the files
together fit the page cache of most machines: from the second pass on, reading measures the
system call and the copy, not the disk.

A path holds a whole file or none: files are written under another name and renamed, and the
manifest comes last. A directory without its manifest, or with files missing, is half
written; the missing ones are written then. Two processes at once do no harm, since a file of
the one serves the other just as well. What is inside the files is not checked here: one that
went bad since is passed over, and counted, where it is read.
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
"""Different images among the files."""
FILE_KIB = 80
"""About, at this size, roughness and quality."""
QUALITY = 90
VERSION = 1
"""To be raised with any change of what the files hold."""

OCTAVES = 9
ROUGHNESS = 0.68
"""Strength of each octave relative to the one of twice its size."""


@dataclass(frozen=True)
class JpegFiles:
    """A directory of `count` JPEG files; their names are their numbers."""

    directory: Path
    count: int

    @classmethod
    def cached(cls, count: int) -> "JpegFiles":
        """Return the place for `count` files in the user's cache; it may not exist yet.

        Raises LeverError for a user without a home.
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
        """About how much room they take."""
        return max(1, self.count * FILE_KIB // 1024)

    def are_whole(self) -> bool:
        """Tell whether all files have been written. Raises LeverError where it cannot tell."""
        try:
            found = json.loads(self._manifest.read_bytes())
            present = set(self.directory.iterdir())
        except (FileNotFoundError, ValueError):
            return False
        except OSError as error:
            raise self._refusal("read", error) from error
        return bool(found == self._expected) and present.issuperset(self.paths)

    def write(self) -> None:
        """Write what is missing. Raises LeverError, and leaves none of it, where that fails."""
        written: list[Path] = []
        partial = self.directory / f".{uuid4().hex}"  # no other process's
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
    """Yield the distinct JPEG files: views of one canvas twice as high and wide as they are."""
    canvas = paint(2 * HEIGHT, 2 * WIDTH)
    for number in range(DISTINCT):
        top, left = number * HEIGHT // DISTINCT, number * WIDTH // DISTINCT
        view = canvas[:, top : top + HEIGHT, left : left + WIDTH]
        file = BytesIO()
        Image.fromarray(view.permute(1, 2, 0).numpy()).save(file, "JPEG", quality=QUALITY)
        yield file.getvalue()


def paint(height: int, width: int) -> Tensor:
    """Return (3, height, width) uint8: noise of every size, each finer one fainter."""
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
    """Write a file that appears at `path` whole; until then its name is `partial`."""
    partial.write_bytes(content)
    partial.replace(path)


def _remove(paths: list[Path]) -> None:
    """Remove what is there; what cannot be removed stays, the first error is the one to tell."""
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)
