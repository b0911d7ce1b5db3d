"""Ranks of a workload, on threads: they vote, so all obey after the same step or none does."""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace
from torch import nn
from torch.distributed import HashStore  # type: ignore[attr-defined]  # documented, not declared

from gpudash.protocol.commands import Change, Command, Plan, Stop
from gpudash.protocol.envelope import Event
from gpudash.protocol.training import BlocksEnded, Refused, TooLate
from gpudash.training import commanded
from tests.answers import blocks
from tests.worker.in_process import FakeEntry, Run, nothing
from workloads.levers import LeverError, Value
from workloads.training import Training

RANKS = 2
STOP = Stop(id=99, at_step=200)
Built = Callable[[Mapping[str, Value]], None]


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread is a rank of a group with one store."""
    store = HashStore()
    monkeypatch.setattr(commanded, "process_store", lambda: store)
    monkeypatch.setattr(commanded, "rank", lambda: int(threading.current_thread().name))
    monkeypatch.setattr(Training, "averaged", nn.Linear(1, 1))


def ranks(
    *commands: Command,
    duration_s: float | None = None,
    rank_1: Built = nothing,
    forward: Built = nothing,
) -> list[Run]:
    """Train with these commands waiting; `rank_1` is called where that one builds its batches."""
    plan = Plan(workload="fake", settings={}, nproc=RANKS, duration_s=duration_s)

    def train(rank: int) -> Run:
        threading.current_thread().name = str(rank)
        entry = FakeEntry(building=rank_1 if rank else nothing, during={"forward": forward})
        return Run(entry, plan=plan).until_stopped(*commands)

    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(train, range(RANKS)))


def same(runs: list[Run], kind: type[Event] | str, what: str) -> list[object]:
    """Return a field of all events of this kind, which is the same on all ranks."""
    each = [[getattr(event, what) for event in run.of(kind)] for run in runs]
    assert each == [each[0]] * RANKS
    return each[0]


def test_a_planned_duration_ends_after_the_same_step_also_if_steps_become_slower() -> None:
    quick_s, slow_s, duration_s = 0.002, 0.1, 0.6

    def sleep(values: Mapping[str, Value]) -> None:
        time.sleep(slow_s if values["batch_size"] == 3 else quick_s)

    slower = Change(id=1, settings={"batch_size": "3"}, at_step=50)
    runs = ranks(slower, duration_s=duration_s, forward=sleep)
    (steps,) = same(runs, "finished", "after_step")
    assert steps <= 50 + duration_s / slow_s + 1
    assert steps == runs[0].training.trained_steps


def test_what_reached_the_ranks_after_its_step_is_answered_as_late() -> None:
    late = Change(id=1, settings={"batch_size": "3"}, at_step=-1)
    assert same(ranks(late, STOP), TooLate, "answers") == [(1,)]


def test_where_one_rank_cannot_change_all_go_back() -> None:
    def fail(values: Mapping[str, Value]) -> None:
        if values["batch_size"] == 3:
            raise LeverError("the files are gone")

    runs = ranks(Change(id=1, settings={"batch_size": "3"}, at_step=20), STOP, rank_1=fail)
    assert [run.of(Refused)[0].reason for run in runs] == [
        "rank 1: the files are gone: went back to batch_size=2",
        "the files are gone: went back to batch_size=2",
    ]
    assert same(runs, "changed", "after_step") == [20]
    assert same(runs, "changed", "settings")[0]["batch_size"] == "2"


def test_where_one_rank_cannot_go_back_from_blocks_all_have_the_same_settings() -> None:
    built: list[Value] = []

    def fail_once(values: Mapping[str, Value]) -> None:
        built.append(values["batch_size"])
        if built == [2, 3, 2]:
            raise LeverError("the files are gone")

    asked = replace(blocks(1, 1, {"batch_size": "3"}, min_steps=5), at_step=20)
    runs = ranks(asked, STOP, rank_1=fail_once)
    assert same(runs, BlocksEnded, "why") == ["no block is left"]
    assert same(runs, "changed", "after_step")[0] == 20
    same(runs, "changed", "settings")
    assert same(runs, "finished", "after_step") == [200]
