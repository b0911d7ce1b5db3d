"""What a container can still give: its limit, less what is used and would not make way."""

from pathlib import Path

import pytest

from workloads import memory

GIB = 2**30
HOST_LEFT = 64 * GIB


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A container of 16 GiB that uses 1 GiB itself and has read 14.9 GiB of files."""
    monkeypatch.setattr(memory, "_host_left", lambda: HOST_LEFT)
    (tmp_path / "memory.max").write_text(f"{16 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{int(15.9 * GIB)}\n")
    (tmp_path / "memory.stat").write_text(
        f"anon {GIB}\nfile {int(14.9 * GIB)}\ninactive_anon {GIB}\n"
        f"active_file {GIB}\ninactive_file {int(13.9 * GIB)}\n"
    )
    return tmp_path


LEFT = {
    "file cache not used lately can still be given": ({}, 14 * GIB),
    "a kernel that tells no cache": ({"memory.stat": f"anon {GIB}\n"}, 0.1 * GIB),
    "without a limit it is what the host can give": ({"memory.max": "max\n"}, HOST_LEFT),
}


@pytest.mark.parametrize(("files", "left"), LEFT.values(), ids=LEFT)
def test_what_can_still_be_given(cgroup: Path, files: dict[str, str], left: float):
    for name, text in files.items():
        (cgroup / name).write_text(text)
    assert memory._container_left(cgroup) == pytest.approx(left, abs=2)


@pytest.mark.parametrize("limited", ["job", "job/step", "job/step/task"])
def test_the_limit_of_any_group_around_the_process_counts(cgroup: Path, limited: str):
    """As a job of Slurm has one, and a container none of its own at the top."""
    top, own = cgroup / "top", cgroup / "own"
    (top / "job/step/task").mkdir(parents=True)
    own.write_text("1:name=systemd:/other\n0::/job/step/task\n")
    for name in ("memory.max", "memory.current", "memory.stat"):
        (cgroup / name).rename(top / limited / name)
    assert memory._container_left(top, own) == pytest.approx(14 * GIB, abs=2)


def test_without_the_controller_it_is_what_the_host_can_give(tmp_path: Path, cgroup: Path):
    assert memory._container_left(tmp_path / "nowhere") == HOST_LEFT
