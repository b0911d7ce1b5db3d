"""The lever `affinity`, on a made-up host with several NUMA nodes."""

import os
from threading import Event, Thread

import pytest

from gpudash.levers import affinity
from gpudash.training.commanded import Refusal
from tests.script.levers.scripts import found, levers, refuses

GPU = "0000:41:00.0"
OWN = os.sched_getaffinity(0)
NEAR = {min(OWN)}


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Return what makes a host with these cores of its nodes, and its GPU at one of them."""
    monkeypatch.setattr(affinity, "SYS", tmp_path)
    monkeypatch.setattr(affinity, "gpu_address", lambda: GPU)

    def make(*nodes, gpu_at):
        for number, cores in enumerate(nodes):
            folder = tmp_path / f"devices/system/node/node{number}"
            folder.mkdir(parents=True)
            (folder / "cpulist").write_text(f"{cores}\n")
        device = tmp_path / "bus/pci/devices" / GPU
        device.mkdir(parents=True)
        (device / "numa_node").write_text(f"{gpu_at}\n")
        return tmp_path

    yield make
    os.sched_setaffinity(0, OWN)


@pytest.mark.parametrize(
    ("gpu_at", "own", "near"),
    [(0, {0, 1, 9}, {0, 1}), (1, {0, 1, 9}, {9}), (1, {3, 4, 10, 11}, {4, 10})],
)
def test_of_its_own_cores_those_of_the_gpus_node_are_near(host, gpu_at, own, near):
    assert affinity.near_cores(host("0-3,11", "4-10", gpu_at=gpu_at), own) == near


@pytest.mark.parametrize(
    ("nodes", "gpu_at", "why"),
    [
        (("0-63",), 0, "the host has one NUMA node"),
        (("0-1", "2-3"), -1, f"does not say at which NUMA node GPU {GPU} is"),
        (("0-1", "2-3"), 0, f"all of the training's cores are beside GPU {GPU}"),
        (("0-1", "2-3"), 1, f"none of the training's cores are beside GPU {GPU}"),
    ],
)
def test_where_there_is_no_choice_the_reason_is_told(host, nodes, gpu_at, why):
    sys = host(*nodes, gpu_at=gpu_at)
    with pytest.raises(Refusal, match=why):
        affinity.near_cores(sys, {0, 1})


def of_gpu():
    made = affinity.Affinity()
    made.update(found(device="cuda"))
    return made


@pytest.mark.skipif(len(OWN) < 2, reason="needs two cores")
def test_all_threads_are_moved_and_put_back_with_those_that_have_started_since(host):
    host(min(OWN), f"{min(OWN) + 1}-1023", gpu_at=0)
    moved, ends, threads = of_gpu(), Event(), {}

    def started(name):
        thread = threads[name] = Thread(target=ends.wait, daemon=True)
        thread.start()

    def cores():
        return {name: os.sched_getaffinity(one.native_id) for name, one in threads.items()}

    started("before")
    moved.apply({"affinity": "near"})
    started("since")
    assert moved.settings == {"affinity": "near"}
    assert os.sched_getaffinity(0) == NEAR
    assert cores() == {"before": NEAR, "since": NEAR}
    moved.update(found(device="cuda"))
    moved.apply({"affinity": "own"})
    assert moved.settings == {"affinity": "own"}
    assert os.sched_getaffinity(0) == OWN
    assert cores() == {"before": OWN, "since": OWN}
    assert moved.offers[0].refusal is None
    ends.set()


def test_it_is_refused_with_its_reason(host):
    refuses(levers(), "affinity: the training uses no GPU", affinity="near")
    host("0-1023", gpu_at=0)
    (offer,) = of_gpu().offers
    assert (offer.default, offer.refusal) == ("–", "the host has one NUMA node")
