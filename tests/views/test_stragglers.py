"""The slow rank: which rank is named, for which phase, when, and when none is."""

import csv
import random
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from gpudash.protocol import GpuReading, HostReading, Progress, Step
from gpudash.views.same_steps import over_others
from gpudash.views.stragglers import Stragglers
from tests.simulated_ranks import STEP_MS, Ranks, start

PARTS = ("data", "copy", "forward", "backward", "optimizer", "host")


def steps(seconds):
    return seconds * 1e3 / STEP_MS


def of_step(pct):
    return pct / 100 * STEP_MS


def slow(rank, **parts):
    return lambda _step, one: parts if one == rank else {}


def begin(ranks):
    stragglers = Stragglers()
    for rank in range(ranks.ranks):
        stragglers.take(rank, start(rank, ranks.kind))
    return stragglers


def found(ranks, seconds=30.0, stragglers=None):
    """The stragglers found after each step, without repeats."""
    stragglers = stragglers or begin(ranks)
    seen = [None]
    for rank, progress in ranks.train(seconds):
        stragglers.take(rank, progress)
        if stragglers.found() != seen[-1]:
            seen.append(stragglers.found())
    return seen


def last(ranks, seconds=30.0):
    return found(ranks, seconds)[-1]


def cut(seen, *, late_ms, caught_up_ms):
    """Cut backward passes in two; rank 1 is `late_ms` late at the end of the first part."""
    for rank, progress in seen:
        *before, step = progress.steps
        late = late_ms if rank == 1 else 0.0
        whole_ms = step.phases_ms["backward"] + late - (caught_up_ms if rank == 1 else 0.0)
        first_ms = 0.6 * step.phases_ms["backward"] + late
        phases_ms = step.phases_ms | {"backward": whole_ms}
        parts_ms = {"backward": (first_ms, whole_ms - first_ms)}
        parts = changed(step, phases_ms=phases_ms, parts_ms=parts_ms)
        yield rank, changed(progress, steps=(*before, parts))


@pytest.mark.parametrize("late_ms", [of_step(3), of_step(10)])
def test_a_rank_is_named_that_is_late_within_its_backward_pass_and_has_caught_up_by_its_end(
    late_ms,
):
    ranks = Ranks(2, seed=3)
    stragglers = begin(ranks)
    for rank, progress in cut(ranks.train(30.0), late_ms=late_ms, caught_up_ms=late_ms):
        stragglers.take(rank, progress)
    named = stragglers.found()
    assert (named.rank, named.phase, named.kind) == (1, "backward", "persistent")
    assert named.excess_ms == pytest.approx(late_ms, rel=0.35)


def test_equal_ranks_with_cut_backward_passes_give_no_alarm():
    ranks = Ranks(4, seed=5)
    stragglers = begin(ranks)
    for rank, progress in cut(ranks.train(60.0), late_ms=0.0, caught_up_ms=0.0):
        stragglers.take(rank, progress)
        assert stragglers.found() is None


def test_ranks_that_cut_unlike_are_compared_at_the_end_of_the_pass():
    ranks = Ranks(2, seed=6)
    stragglers = begin(ranks)
    for rank, progress in cut(ranks.train(30.0), late_ms=0.0, caught_up_ms=0.0):
        *before, step = progress.steps
        first_ms, second_ms = step.parts_ms["backward"]
        if rank == 1:
            parts_ms = {"backward": (first_ms + 2.0, second_ms - 3.0, 1.0)}
            step = changed(step, parts_ms=parts_ms)
        stragglers.take(rank, changed(progress, steps=(*before, step)))
    assert stragglers.found() is None


# ── rank and phase ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(("pct", "ranks"), [(3, 2), (5, 4), (20, 8)])
def test_a_slow_rank_is_named_with_its_phase_and_no_other_ever_is(part, pct, ranks):
    seen = found(Ranks(ranks, seed=pct, delay=slow(1, **{part: of_step(pct)})))
    assert {(one.rank, one.phase, one.kind) for one in seen if one} == {(1, part, "persistent")}
    assert seen[-1].excess_ms == pytest.approx(of_step(pct), rel=0.35)
    assert seen[-1].slower_pct == pytest.approx(pct, rel=0.45)
    assert seen[-1].others_wait_ms == pytest.approx(of_step(pct), rel=0.35)


def test_a_rank_that_becomes_slow_later_is_named_within_30_s():
    def delay(step, rank):
        return {"forward": of_step(3)} if rank == 3 and step > steps(32) else {}

    ranks = Ranks(4, delay=delay)
    stragglers = begin(ranks)
    assert found(ranks, 30, stragglers) == [None]
    assert found(ranks, 32, stragglers)[-1].rank == 3


@pytest.mark.parametrize(("ranks", "jitter"), [(2, 0.05), (4, 0.1), (8, 0.05), (64, 0.03)])
def test_ranks_that_differ_as_two_gpus_do_give_no_alarm(ranks, jitter):
    assert found(Ranks(ranks, seed=ranks, jitter=jitter, spread=0.0025), seconds=60) == [None]


def test_a_rank_that_recovers_is_named_no_longer():
    def delay(step, rank):
        return {"copy": 2.0} if rank == 2 and step < steps(25) else {}

    seen = found(Ranks(4, delay=delay), 60)
    assert (seen[-2].rank, seen[-1]) == (2, None)


def test_a_slow_rank_on_cpus_is_named_too():
    assert last(Ranks(4, kind="cpu", delay=slow(0, data=of_step(10)))).phase == "data"


def test_a_delay_spread_over_phases_is_named_without_a_phase():
    spread_out = dict.fromkeys(("copy", "forward", "your_code", "optimizer"), of_step(3))
    seen = last(Ranks(4, delay=slow(1, **spread_out)))
    assert (seen.rank, seen.phase) == (1, "")
    assert seen.excess_ms == seen.others_wait_ms


# ── delays hidden by a host that runs ahead ───────────────────────────────────────────────────


@pytest.mark.parametrize("part", ["data", "host"])
def test_a_hidden_delay_is_named_without_a_wait(part):
    seen = last(Ranks(2, hides=True, delay=slow(1, **{part: of_step(10)})))
    assert (seen.rank, seen.phase, seen.others_wait_ms) == (1, part, None)
    assert seen.excess_ms == pytest.approx(of_step(10), rel=0.2)


def test_a_host_that_waits_in_launches_is_not_busier_because_another_waits_for_data():
    def delay(_step, rank):
        return {"data": 8.0} if rank == 1 else {"host": 8.0}

    seen = found(Ranks(2, hides=True, delay=delay))
    assert {(one.rank, one.phase) for one in seen if one} == {(1, "data")}


# ── changing ranks and unequal batches ──────────────────────────────────────


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize("turn_s", [2, 4])
def test_a_slow_rank_that_changes_is_wandering(ranks, turn_s):
    def delay(step, rank):
        return {"backward": 3.0} if rank == int(step / steps(turn_s)) % ranks else {}

    seen = found(Ranks(ranks, delay=delay), 60)
    assert seen[-1].kind == "wandering"
    assert seen[-1].phase == "backward"


def test_a_rank_with_more_tokens_is_an_imbalance():
    longer = Ranks(
        4,
        tokens=lambda _step, rank: 1200 if rank == 1 else 1000,
        delay=slow(1, forward=0.8, backward=2.0),
    )
    seen = last(longer)
    assert (seen.rank, seen.phase, seen.kind) == (1, "backward", "imbalance")


def test_a_delay_that_more_tokens_do_not_explain_is_a_slow_rank():
    ranks = Ranks(4, tokens=lambda _step, rank: 1000 + 10 * rank, delay=slow(1, backward=3.0))
    assert last(ranks).kind == "persistent"


def test_batches_of_other_lengths_in_each_step_are_an_imbalance():
    def tokens(step, rank):
        return random.Random(100 * step + rank).randint(600, 1400)

    uneven = Ranks(4, tokens=tokens, delay=lambda *at: {"backward": tokens(*at) / 100})
    seen = last(uneven)
    assert (seen.kind, seen.phase, seen.why) == ("imbalance", "", "another rank in each step")
    assert seen.others_wait_ms > 1.0


# ── when nothing is claimed ─────────────────────────────────────────────────────────────


def test_without_a_measured_communication_nothing_is_claimed():
    ranks = Ranks(2, delay=slow(1, backward=5.0))
    stragglers = begin(ranks)
    for rank, progress in ranks.train(30):
        for step in progress.steps:
            (step.phases_ms or {}).pop("communication", None)
        stragglers.take(rank, progress)
    assert stragglers.found() is None


def test_steps_may_become_faster_and_skip_blocks_at_once():
    stragglers = begin(Ranks(2))
    for number, step_ms in ((1, 5000.0), (8, 1.0), (9, 1.0), (12, 1.0), (13, 1.0), (24, 1.0)):
        phases_ms = {"forward": step_ms, "communication": 0.0}
        step = Step(step=number, segment=0, finished_s=0.0, step_ms=step_ms, phases_ms=phases_ms)
        seen = Progress(until_s=0.0, steps=(step,), total_steps=number, total_samples=None)
        stragglers.take(0, seen)
    assert stragglers.found() is None


def test_clocks_of_nodes_are_not_compared():
    ranks = Ranks(2, delay=slow(1, backward=2.0))
    stragglers = begin(ranks)
    for rank, progress in ranks.train(30):
        ahead_s = 5000.0 * rank
        seen = [changed(step, finished_s=step.finished_s + ahead_s) for step in progress.steps]
        stragglers.take(rank, changed(progress, steps=tuple(seen)))
    assert stragglers.found().rank == 1


def test_a_start_forgets_what_was_before():
    ranks = Ranks(2, delay=slow(1, backward=5.0))
    stragglers = begin(ranks)
    assert found(ranks, stragglers=stragglers)[-1] is not None
    stragglers.take(0, start(0))
    assert stragglers.found() is None


def test_the_median_of_the_others_leaves_oneself_out():
    assert over_others({0: 1.0, 1: 4.0}) == {0: -3.0, 1: 3.0}
    assert over_others({0: 1.0, 1: 4.0, 2: 2.0}) == {0: -2.0, 1: 2.5, 2: -0.5}
    assert over_others({0: 1.0, 1: 4.0, 2: 2.0, 3: 3.0}) == {0: -2.0, 1: 2.0, 2: -1.0, 3: 1.0}


# ── why ─────────────────────────────────────────────────────────────────────────────────


def why(*readings, part="backward"):
    ranks = Ranks(2, delay=slow(1, **{part: 3.0}))
    stragglers = begin(ranks)
    for rank, one in readings:
        stragglers.take(rank, one)
    return found(ranks, 15, stragglers)[-1].why


def reading(gpu, at_s=0.0, **values):
    uuid = f"GPU-{gpu}"
    return 0, GpuReading(at_s=at_s, index=gpu, uuid=uuid, name="NVIDIA H200", values=values)


def on_host(rank, core_wait_pct):
    return rank, HostReading(at_s=0.0, values={"core_wait_pct": core_wait_pct})


def test_what_only_its_gpu_shows_is_the_reason():
    usual = reading(0, sm_clock_mhz=1980.0, throttle="none", temperature_c=60.0)
    capped = reading(1, sm_clock_mhz=1410.0, throttle="sw_power_cap", temperature_c=61.0)
    hot = reading(1, sm_clock_mhz=1980.0, throttle="hw_thermal_slowdown", temperature_c=88.0)
    clock = "its clock is 1,410 MHz, the others' 1,980 MHz"
    assert why(usual, capped) == f"power cap on GPU 1, {clock}"
    assert why(usual, hot) == "heat on GPU 1, 88 °C"
    assert why(usual, reading(1, sm_clock_mhz=1410.0)) == clock


def test_a_gpu_is_no_reason_for_what_is_not_computed():
    gpus = reading(0, sm_clock_mhz=1980.0), reading(1, sm_clock_mhz=1410.0)
    assert why(*gpus, part="forward") != ""
    assert why(*gpus, part="copy") == ""
    assert why(*gpus, part="data") == ""


def test_a_clock_that_is_lower_for_a_moment_is_no_reason():
    steady = [reading(gpu, at_s=at_s, sm_clock_mhz=1980.0) for at_s in range(9) for gpu in (0, 1)]
    assert why(*steady, reading(1, at_s=9.0, sm_clock_mhz=1785.0)) == ""
    lower = [reading(1, at_s=at_s, sm_clock_mhz=1785.0) for at_s in range(9, 18)]
    assert why(*steady, *lower) == "its clock is 1,785 MHz, the others' 1,980 MHz"


def test_what_all_gpus_show_is_no_reason():
    both = [reading(gpu, sm_clock_mhz=1410.0, throttle="sw_power_cap") for gpu in (0, 1)]
    assert why(*both) == ""
    assert why(reading(1, throttle="sw_power_cap")) == ""
    assert why() == ""


def test_a_wait_for_a_core_is_the_reason_for_host_phases():
    host = on_host(1, 48.0)
    assert why(host, part="data") == "cores are short: rank 1 waits for one 48 % of the time"
    assert why(host) == ""


def test_the_wait_for_a_core_is_the_slow_ranks_own_beside_the_others():
    seen = "cores are short: rank 1 waits for one 48 % of the time, the others 3 %"
    assert why(on_host(0, 3.0), on_host(1, 48.0), part="data") == seen
    assert why(on_host(0, 48.0), on_host(1, 3.0), part="data") == ""


def test_a_host_that_launches_late_is_the_reason_for_what_is_computed_if_it_alone_waits():
    seen = "cores are short: rank 1 waits for one 48 % of the time, the others 3 %"
    assert why(on_host(0, 3.0), on_host(1, 48.0), part="backward") == seen
    assert why(on_host(0, 44.0), on_host(1, 48.0), part="backward") == ""
    assert why(on_host(0, 3.0), on_host(1, 48.0), part="copy") == ""
    gpus = reading(0, sm_clock_mhz=1980.0), reading(1, sm_clock_mhz=1410.0)
    clock = "its clock is 1,410 MHz, the others' 1,980 MHz"
    assert why(*gpus, on_host(0, 3.0), on_host(1, 48.0), part="backward") == clock


# ── two H200s ───────────────────────────────────────────────────────────────────────────


def recorded(slow_in):
    """Steps of two real ranks, one of them slower by 5 % of a step of 14.1 ms."""
    with Path(__file__).with_name("h200_ranks.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["slow_in"] == slow_in:
                ms = {
                    name: float(cell) for name, cell in row.items() if cell and name not in NOT_MS
                }
                parts = tuple(ms.pop(name) for name in CUT if name in ms)
                phases = {name: took for name, took in ms.items() if not name.endswith("_ms")}
                times = {name: took for name, took in ms.items() if name.endswith("_ms")}
                step = Step(
                    step=int(row["step"]),
                    segment=0,
                    finished_s=0.0,
                    phases_ms=phases,
                    parts_ms={"backward": parts} if parts else None,
                    **times,
                )
                seen = Progress(until_s=0.0, steps=(step,), total_steps=0, total_samples=0)
                yield row["slow_rank"], int(row["rank"]), seen


NOT_MS = ("slow_in", "slow_rank", "rank", "step")
CUT = ("backward_1", "backward_2", "backward_3", "backward_4")
"""Not recorded in all runs."""


@pytest.mark.parametrize("slow_in", ["data", "forward", "backward", "optimizer"])
def test_of_two_real_ranks_the_slow_one_is_named_whose_delay_slows_the_others_backward_pass(
    slow_in,
):
    stragglers, slow_rank = Stragglers(), ""
    for rank in (0, 1):
        stragglers.take(rank, start(rank, world_size=2))
    for slow_rank, rank, seen in recorded(slow_in):
        expected = slow_rank
        stragglers.take(rank, seen)
    found = stragglers.found()
    assert found is not None
    assert (str(found.rank), found.phase) == (expected, slow_in)


def test_two_real_ranks_that_differ_by_1_pct_give_no_alarm():
    stragglers = Stragglers()
    for rank in (0, 1):
        stragglers.take(rank, start(rank, world_size=2))
    for _, rank, seen in recorded("quiet"):
        stragglers.take(rank, seen)
        assert stragglers.found() is None
