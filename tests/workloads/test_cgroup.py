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


def test_without_groups_there_is_no_limit(tree):
    assert (cgroup.cores_quota(), cgroup.memory_limit_bytes()) == (None, None)
    tree("0::/\n", **{"cpu.max": "max 100000\n", "memory.max": "max\n"})
    assert (cgroup.cores_quota(), cgroup.memory_limit_bytes()) == (None, None)


def test_the_smallest_limit_of_the_group_and_those_above_it_counts(tree):
    files = {
        "slurm/job_7/cpu.max": "400000 100000\n",
        "slurm/job_7/step_0/cpu.max": "max 100000\n",
        "slurm/job_7/memory.max": "8589934592\n",
        "slurm/job_7/step_0/memory.max": "1073741824\n",
    }
    tree("0::/slurm/job_7/step_0\n", **files)
    assert cgroup.cores_quota() == 4.0
    assert cgroup.memory_limit_bytes() == 1 << 30


def test_a_container_that_does_not_see_its_groups_name_reads_the_root(tree):
    tree("0::/docker/abc\n", **{"cpu.max": "150000 100000", "memory.max": "536870912"})
    assert (cgroup.cores_quota(), cgroup.memory_limit_bytes()) == (1.5, 1 << 29)


def test_version_1_has_a_tree_for_each_controller(tree):
    files = {
        "cpu,cpuacct/job/cpu.cfs_quota_us": "200000\n",
        "cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
        "memory/job/memory.limit_in_bytes": "2147483648\n",
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
    }
    tree("4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/\n0::/\n", **files)
    assert (cgroup.cores_quota(), cgroup.memory_limit_bytes()) == (2.0, 2 << 30)


def test_version_1_writes_minus_1_where_there_is_no_quota(tree):
    files = {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}
    tree("1:cpu:/\n", **files)
    assert cgroup.cores_quota() is None


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
