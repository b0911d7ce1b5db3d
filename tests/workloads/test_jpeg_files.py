"""The files are written once and whole, or not at all, and one line says why."""

import errno
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image

from workloads import jpeg_files
from workloads.cache import data_directory
from workloads.jpeg_files import JpegFiles
from workloads.levers import LeverError

COUNT = 6
PAINTED = cache(jpeg_files.paint)
AS_ROOT = os.geteuid() == 0


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPUDASH_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(jpeg_files, "DISTINCT", 2)
    monkeypatch.setattr(jpeg_files, "paint", PAINTED)


@pytest.fixture
def files() -> JpegFiles:
    return JpegFiles.cached(COUNT)


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def refusing(files: JpegFiles, why: str) -> Iterator[None]:
    """Expect one helpful line."""
    with pytest.raises(LeverError, match=why) as caught:
        yield
    text = str(caught.value)
    assert "\n" not in text
    assert str(files.directory) in text
    assert "set GPUDASH_DATA to a writable directory with about 1 MiB free" in text


def ensure(files: JpegFiles) -> None:
    if not files.are_whole():
        files.write()


def times(files: JpegFiles) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in files.paths if path.exists()}


def fail_after(
    monkeypatch: pytest.MonkeyPatch, writes: int, error: BaseException
) -> Callable[[Path, bytes], int]:
    """Let that many files be written whole, and half of the next one."""
    write_bytes, left = Path.write_bytes, [writes]

    def write(path: Path, content: bytes) -> int:
        left[0] -= 1
        if left[0] < 0:
            write_bytes(path, content[: len(content) // 2])
            raise error
        return write_bytes(path, content)

    monkeypatch.setattr(Path, "write_bytes", write)
    return write_bytes


def test_they_are_photographs_in_size_and_cost(files: JpegFiles, tmp_path: Path) -> None:
    assert not files.are_whole()
    files.write()
    assert files.are_whole()
    assert files.directory.is_relative_to(tmp_path)
    assert {p.name for p in files.directory.iterdir()} == {
        "manifest.json",
        *(f"{number:05}.jpg" for number in range(COUNT)),
    }
    for path in files.paths:
        assert 0.7 < path.stat().st_size / 1024 / jpeg_files.FILE_KIB < 1.3
    first, second, third = (np.asarray(Image.open(path)) for path in files.paths[:3])
    assert first.shape == (533, 800, 3)
    assert (first == third).all()  # two distinct images
    assert (first != second).any()


def test_a_second_start_writes_nothing(files: JpegFiles) -> None:
    files.write()
    before = times(files)
    assert JpegFiles.cached(COUNT).are_whole()
    files.write()
    assert times(files) == before


def test_another_number_of_files_is_another_place() -> None:
    assert JpegFiles.cached(1).directory != JpegFiles.cached(2).directory


@pytest.mark.parametrize(
    "damage",
    [
        lambda files: (files.directory / "manifest.json").unlink(),
        lambda files: (files.directory / "manifest.json").write_text("{"),
        lambda files: (files.directory / "manifest.json").write_text('{"files": 5}'),
        lambda files: files.paths[3].unlink(),
        lambda files: [path.unlink() for path in files.paths],
    ],
    ids=["no manifest", "half a manifest", "another count", "a file missing", "all missing"],
)
def test_a_half_written_directory_is_finished(
    files: JpegFiles, damage: Callable[[JpegFiles], object]
) -> None:
    files.write()
    contents = [path.read_bytes() for path in files.paths]
    damage(files)
    assert not files.are_whole()
    left = times(files)
    files.write()
    assert files.are_whole()
    assert [path.read_bytes() for path in files.paths] == contents
    assert {path: times(files)[path] for path in left} == left  # kept, not written again


@pytest.mark.parametrize("missing", [COUNT, 4])
def test_a_full_disk_is_one_line_and_leaves_and_takes_nothing(
    files: JpegFiles, missing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write()
    for path in files.paths[COUNT - missing :]:
        path.unlink()
    (files.directory / "manifest.json").unlink()
    left = times(files)
    fail_after(monkeypatch, 3, FULL)
    with refusing(files, "No space left on device"):
        files.write()
    assert (times(files), len(list(files.directory.iterdir()))) == (left, len(left))
    assert not files.are_whole()


def test_an_interrupted_writing_goes_on_where_it_was(
    files: JpegFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bytes = fail_after(monkeypatch, 3, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        files.write()
    assert not files.are_whole()
    before = times(files)
    assert len(before) == len(list(files.directory.iterdir())) == 3
    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    files.write()
    assert files.are_whole()
    assert times(files).items() >= before.items()


@pytest.mark.parametrize("place", ["data", "data/below"])
def test_a_file_where_the_directory_should_be(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").write_text("not a directory")
    monkeypatch.setenv("GPUDASH_DATA", str(tmp_path / place))
    files = JpegFiles.cached(COUNT)
    for action in (files.are_whole, files.write):
        with refusing(files, "Not a directory"):
            action()


def test_without_a_home_it_says_where_the_files_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container has none whose user is a mere number."""

    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError))
    for name in ("GPUDASH_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(LeverError, match="no home directory; set GPUDASH_DATA to a writable dir"):
        JpegFiles.cached(8)


@pytest.mark.parametrize("call", ["read_bytes", "mkdir"])
def test_a_refused_call_is_one_line(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    monkeypatch.setattr(Path, call, Mock(side_effect=refused))
    files = JpegFiles.cached(COUNT)
    with refusing(files, "Permission denied"):
        ensure(files)


def test_two_processes_at_once_leave_one_whole_directory(files: JpegFiles) -> None:
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write_in_a_child) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert files.are_whole()
    assert len(list(files.directory.iterdir())) == COUNT + 1  # no partial one is left
    assert {np.asarray(Image.open(path)).shape for path in files.paths} == {(533, 800, 3)}


def write_in_a_child() -> None:
    torch.set_num_threads(1)  # the parent's threads were not forked
    JpegFiles.cached(COUNT).write()


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"GPUDASH_DATA": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"GPUDASH_DATA": "", "XDG_CACHE_HOME": "/b"}, "/b/gpudash"),
        ({"HOME": "/c"}, "/c/.cache/gpudash"),
    ],
)
def test_where_the_data_lies(
    variables: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GPUDASH_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert data_directory() == Path(place)
