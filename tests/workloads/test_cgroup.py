"""Limits of control groups, in the files of version 1, of version 2, and inside of a container."""

from pathlib import Path

import pytest

from workloads import cgroup
from workloads.standard_levers import usable_cores


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Write the groups' files, and the groups that this process is in."""
    monkeypatch.setattr(cgroup, "ROOT", tmp_path / "fs")
    monkeypatch.setattr(cgroup, "MEMBERSHIP", tmp_path / "self")

    def write(membership: str, **files: str) -> None:
        (tmp_path / "self").write_text(membership)
        for name, text in files.items():
            path: Path = tmp_path / "fs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


LIMITS = {
    "no groups": ("", {}, (None, None)),
    "no limit": ("0::/\n", {"cpu.max": "max 100000\n", "memory.max": "max\n"}, (None, None)),
    "the smallest of the group and those above it": (
        "0::/slurm/job_7/step_0\n",
        {
            "slurm/job_7/cpu.max": "400000 100000\n",
            "slurm/job_7/step_0/cpu.max": "max 100000\n",
            "slurm/job_7/memory.max": "8589934592\n",
            "slurm/job_7/step_0/memory.max": "1073741824\n",
        },
        (4.0, 1 << 30),
    ),
    "a container that does not see its group's name reads the root": (
        "0::/docker/abc\n",
        {"cpu.max": "150000 100000", "memory.max": "536870912"},
        (1.5, 1 << 29),
    ),
    "version 1 has a tree for each controller": (
        "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/\n0::/\n",
        {
            "cpu,cpuacct/job/cpu.cfs_quota_us": "200000\n",
            "cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
            "memory/job/memory.limit_in_bytes": "2147483648\n",
            "memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
        (2.0, 2 << 30),
    ),
    "version 1 writes -1 where there is no quota": (
        "1:cpu:/\n",
        {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"},
        (None, None),
    ),
}


@pytest.mark.parametrize(("membership", "files", "limits"), LIMITS.values(), ids=LIMITS)
def test_limits_of_the_processs_groups(tree, membership, files, limits):
    if files:
        tree(membership, **files)
    assert (cgroup.cores_quota(), cgroup.memory_limit_bytes()) == limits


@pytest.mark.parametrize("text", ["", "nonsense", "1 2 3", "100000 0", "\udcff"])
def test_files_that_make_no_sense_are_no_limit(tree, text):
    tree("0::/\nx\n", **{"cpu.max": text.encode("utf-8", "replace").decode()})
    assert cgroup.cores_quota() is None


@pytest.mark.parametrize(
    ("quota", "cores"), [("max", 64), ("6400000", 64), ("250000", 2), ("50000", 1)]
)
def test_usable_cores_are_those_of_the_quota(tree, monkeypatch, quota, cores):
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(64)))
    tree("0::/\n", **{"cpu.max": f"{quota} 100000"})
    assert usable_cores() == cores
