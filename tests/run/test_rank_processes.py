"""Real ranks under torchrun: they obey at the same step, and none outlives the source."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gpudash.protocol.commands import Block, Blocks, Change, Pause, Plan, Resume, Stop
from gpudash.protocol.envelope import Event
from gpudash.protocol.training import BlocksEnded, Refused, Status
from gpudash.run.workload_process import WorkloadProcess, job_of
from tests.answers import blocks
from tests.watched import Watched

PATIENCE_S = 120
TOO_LARGE = """
import time
import torch
from gpudash import workload

@workload()
def mine(values, device):
    model = torch.nn.Linear(4, 1).to(device)
    data = torch.utils.data.TensorDataset(torch.randn(64, 4))

    def loss(model, batch):
        time.sleep(0.005)  # or they train as fast as they can all the time
        if len(batch[0]) == 16:
            raise torch.OutOfMemoryError("out of memory")
        return model(batch[0]).mean()

    return model, torch.optim.SGD(model.parameters(), lr=1e-3), data, loss
"""
"""A batch of 16 is."""


class Ranks(Watched):
    """Two ranks or more, and all their messages."""

    def __init__(self, plan: Plan) -> None:
        self.held, self.ranks = WorkloadProcess(plan), range(plan.nproc)
        super().__init__(job_of(plan, self.held))

    def each(self, kind: type[Event] | str) -> list[list[Event]]:
        """Return each rank's messages of this kind."""
        return [self.of(kind, rank) for rank in self.ranks]

    def train(self) -> None:
        """Wait until both train."""
        before = [len(self.steps(rank)) for rank in self.ranks]
        self.until(lambda: all(len(self.steps(one)) > before[one] for one in self.ranks))


@pytest.fixture
def start() -> Iterator[Callable[[Plan], Ranks]]:
    running = []

    def begin(plan: Plan) -> Ranks:
        running.append(Ranks(plan))
        return running[-1]

    yield begin
    for one in running:
        one.source.close()


@pytest.fixture
def ranks(tmp_path: Path, start: Callable[[Plan], Ranks]) -> Ranks:
    file = tmp_path / "mine.py"
    file.write_text(TOO_LARGE)
    levers = {"num_workers": "0", "batch_size": "2"}
    return start(Plan(workload=str(file), settings=levers, device="cpu", nproc=2))


def listening(pid: int) -> set[str]:
    """Return the addresses that its processes listen on."""
    launcher = psutil.Process(pid)
    return {
        connection.laddr.ip
        for process in (launcher, *launcher.children(recursive=True))
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }


def test_all_ranks_obey_at_the_same_step(ranks: Ranks):
    ranks.train()
    assert listening(ranks.held.pid) == {"127.0.0.1"}
    begun = [one[0].process for one in ranks.each("started")]
    assert [(one.world_size, one.bus_gb_s > 0) for one in begun] == [(2, True), (2, True)]

    changed = ranks.ask(Change(id=1, settings={"bucket_cap_mb": "1"}), 2)
    assert changed[0].after_step == changed[1].after_step

    refused = ranks.ask(Change(id=2, settings={"cuda_graph": "on"}), 2)
    assert {one.reason for one in refused} == {
        "cuda_graph=on: not with several processes, whose all-reduce is not recorded"
    }

    paused = ranks.ask(Pause(id=3), 2)
    assert paused[0].after_step == paused[1].after_step
    changed = ranks.ask(Change(id=4, settings={"batch_size": "4"}), 2)
    assert changed[0].after_step == changed[1].after_step == paused[0].after_step
    ways = [{"pipelined": way} for way in ("on", "off", "off", "on")]
    ranks.source.send(blocks(5, 1, *ways, min_s=0.05))
    ranks.ask(Resume(id=6), 2)
    ranks.until(lambda: all(ranks.each(BlocksEnded)))
    switches = [
        [(one.block, one.after_step, one.settings) for one in said]
        for said in ranks.each("changed")
    ]
    assert switches[0] == switches[1]
    assert [block for block, _, _ in switches[0]] == [None, None, 0, 1, 2, 3, None]

    timed = tuple(
        Block(number=number, changes={}, min_steps=2, min_s=0.05, wall_clock=how)
        for number, how in enumerate(("instrumented", "uninstrumented"))
    )
    ranks.ask(Blocks(id=7, run=2, blocks=timed), 2)
    assert switches[0] == switches[1]

    assert "communication_ms" in {name for step in ranks.steps(1) for name in step.values}

    ranks.ask(Change(id=8, settings={"batch_size": "16"}), 2)
    ranks.until(lambda: {len(one) for one in ranks.each(Refused)} == {2})  # as they compute
    ranks.until(lambda: all(one[-1].answers == () for one in ranks.each("changed")))
    back = [one[-1] for one in ranks.each("changed")]
    assert [one.settings["batch_size"] for one in back] == ["4", "4"]
    assert back[0].after_step == back[1].after_step
    assert [one[-1].kind for one in ranks.each(Refused)] == ["out_of_memory"] * 2

    ranks.train()
    finished = ranks.ask(Stop(id=9), 2)
    assert finished[0].after_step == finished[1].after_step
    ranks.end()
    assert ranks.source.held.exit_code == 0
    of_ours = {"batch_size", "pipelined"}  # and nothing of torchrun's or a library's
    printed = [line for line in ranks.lines() if "hostname" not in line]  # without a network
    assert {line.partition("=")[0] for line in printed} == of_ours


def load_torch(ranks: Ranks) -> None:
    """Wait until both have begun to; an end costs least then."""
    ranks.until(
        lambda: all(any(one.text == "loading torch" for one in said) for said in ranks.each(Status))
    )


def test_no_rank_outlives_the_source(ranks: Ranks):
    load_torch(ranks)
    trained = psutil.Process(ranks.held.pid).children(recursive=True)
    assert len(trained) >= 2
    ranks.source.close()
    _, alive = psutil.wait_procs(trained, PATIENCE_S)
    assert alive == []


def test_where_one_rank_dies_all_end(ranks: Ranks):
    load_torch(ranks)
    launcher = psutil.Process(ranks.held.pid)
    by_rank = {one.environ()["RANK"]: one for one in launcher.children()}
    by_rank["1"].kill()
    ranks.end()
    assert not by_rank["0"].is_running()
    assert ranks.source.ended() == "rank 1 was killed by SIGKILL"
