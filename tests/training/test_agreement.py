"""Ranks decide the same, whichever of them refuses, comes late or does not come."""

import math
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
from torch.distributed import (  # type: ignore[attr-defined]  # documented, not declared
    HashStore,
    PrefixStore,
    TCPStore,
)

from gpudash.training.agreement import GROUP, Agreement, Decision
from tests.waiting import until

SHORT_S = 0.1
"""Seconds of patience that run out. Ranks that a test has wait for each other have no end of it."""


def all_ranks(
    world_size: int, decide: Callable[[Agreement, int], Decision], patience_s: float = math.inf
) -> list[Decision]:
    store = HashStore()
    ranks = range(world_size)
    agreements = [Agreement(store, rank, world_size, patience_s) for rank in ranks]
    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(decide, agreements, ranks))


@pytest.mark.parametrize("world_size", [1, 2, 5, GROUP, GROUP + 1, 3 * GROUP - 1])
def test_without_a_refusal_all_ranks_get_rank_0s_payload(world_size: int) -> None:
    decided = all_ranks(world_size, lambda one, rank: one.decide("7", None, f"until {rank + 90}"))
    assert decided == [Decision(None, "until 90")] * world_size


def test_the_refusal_of_one_rank_holds_on_all() -> None:
    decided = all_ranks(4, lambda one, rank: one.decide("7", "no loader" if rank == 2 else None))
    assert decided[2] == Decision("no loader")
    assert [decided[rank] for rank in (0, 1, 3)] == [Decision("rank 2: no loader")] * 3


def after_a_patient_one(
    store: HashStore, patient: Agreement, late: Agreement, topic: str
) -> Decision:
    """Have a rank decide that comes once another one waits: the same comes of it for both."""
    before = store.num_keys()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(patient.decide, topic, None)
        until(lambda: store.num_keys() > before)
        decided = late.decide(topic, None)
    assert first.result() == decided
    return decided


@pytest.fixture
def store():
    return HashStore()


def test_a_rank_that_does_not_come_costs_the_others_their_patience_and_is_named(store) -> None:
    patient, late = Agreement(store, 2, 3, math.inf), Agreement(store, 0, 3, SHORT_S)
    decided = after_a_patient_one(store, patient, late, "7")
    assert decided == Decision("rank 1 did not answer within 0.1 s")
    alone = Agreement(HashStore(), 40, 70, SHORT_S).decide("7", None)
    assert alone.refusal == "ranks 0, 1, 2, 3 and 65 more did not answer within 0.1 s"


def test_a_rank_that_refuses_does_not_wait_and_later_ranks_hear_of_it(store) -> None:
    Agreement(store, 0, 2, math.inf).decide("7", "it has left")
    later = Agreement(store, 1, 2, math.inf).decide("7", None)
    assert later == Decision("rank 0: it has left")


@pytest.mark.parametrize("world_size", [2, GROUP + 1])
def test_decisions_leave_no_keys_behind_once_all_ranks_have_read_them(
    store, world_size: int
) -> None:
    ranks = [Agreement(store, rank, world_size, math.inf) for rank in range(world_size)]

    def decide(one: Agreement) -> int:
        one.decide("first", None)
        return store.num_keys()

    def go_on(one: Agreement) -> None:
        for topic in range(10):  # none of which the one before it moves
            one.decide(f"refused {topic}", "no" if one is ranks[1] else None)
            assert one.decide(str(topic), None) == Decision(None)

    with ThreadPoolExecutor(world_size) as pool:
        of_one = max(pool.map(decide, ranks))
        list(pool.map(go_on, ranks))
    assert store.num_keys() == of_one


@pytest.mark.parametrize("decided_since", [False, True])
def test_a_rank_that_comes_after_the_others_gave_up_is_refused(
    store, *, decided_since: bool
) -> None:
    first, second = (Agreement(store, rank, 2, SHORT_S) for rank in range(2))
    given_up = first.decide("7", None)
    assert given_up == Decision("rank 1 did not answer within 0.1 s")
    if decided_since:  # so that what they decided is deleted
        patient = Agreement(store, 1, 2, math.inf)
        assert after_a_patient_one(store, patient, first, "8") == Decision(None)
        given_up = Decision("rank 0 did not answer within 0.1 s")
    assert second.decide("7", None) == given_up


def test_a_rank_that_runs_out_of_patience_at_the_last_moment_does_as_the_others() -> None:
    delays = [random.Random(16 + rank) for rank in range(3)]

    def decide(one: Agreement, rank: int) -> Decision:
        time.sleep(delays[rank].uniform(0, 2 * SHORT_S / 5))
        return one.decide("7", None)

    for _ in range(20):
        assert len(set(all_ranks(3, decide, SHORT_S / 5))) == 1


def test_a_lost_store_refuses_the_decision() -> None:
    kept = [TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)]
    store = TCPStore("127.0.0.1", kept[0].port, 1, is_master=False)
    agreement = Agreement(store, 1, 2, SHORT_S)
    assert "rank 0 did not" in (agreement.decide("7", None).refusal or "")
    kept.clear()
    assert "store" in (agreement.decide("8", None).refusal or "")


def test_a_decision_holds_even_if_its_keys_cannot_be_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PrefixStore, "delete_key", Mock(side_effect=RuntimeError))
    alone = Agreement(HashStore(), 0, 1)
    assert [alone.decide(topic, None).refusal for topic in "abc"] == [None] * 3


def test_clients_of_one_server_agree() -> None:
    with_server = TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)

    def decide(rank: int) -> Decision:
        store = TCPStore("127.0.0.1", with_server.port, 1, is_master=False)
        agreement = Agreement(store, rank, 4, math.inf)
        decided = [agreement.decide(str(topic), None, f"p{topic}") for topic in range(20)]
        assert [one.payload for one in decided] == [f"p{topic}" for topic in range(20)]
        return agreement.decide("last", "mine" if rank == 3 else None)

    with ThreadPoolExecutor(4) as pool:
        decided = list(pool.map(decide, range(4)))
    assert [one.refusal for one in decided] == ["rank 3: mine"] * 3 + ["mine"]
    assert with_server.num_keys() < 10  # those of the two newest decisions
