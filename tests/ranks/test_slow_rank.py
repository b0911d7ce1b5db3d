"""The slow rank: which rank is named, for which phase, when, and when none is."""

import csv
import random
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from gpudash.protocol.readings import GpuReading, HostReading
from gpudash.protocol.training import Progress, Step
from gpudash.ranks.same_steps import over_others
from gpudash.ranks.slow_rank import Stragglers
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
        whole_ms = step.values["backward_ms"] + late - (caught_up_ms if rank == 1 else 0.0)
        first_ms = 0.6 * step.values["backward_ms"] + late
        parts_ms = {"backward": (first_ms, whole_ms - first_ms)}
        values = step.values | {"backward_ms": whole_ms}
        parts = changed(step, values=values, parts_ms=parts_ms)
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
            step.values.pop("communication_ms", None)
        stragglers.take(rank, progress)
    assert stragglers.found() is None


def test_steps_may_become_faster_and_skip_blocks_at_once():
    stragglers = begin(Ranks(2))
    for number, step_ms in ((1, 5000.0), (8, 1.0), (9, 1.0), (12, 1.0), (13, 1.0), (24, 1.0)):
        values = {"forward_ms": step_ms, "communication_ms": 0.0}
        step = Step(step=number, segment=0, finished_s=0.0, step_ms=step_ms, values=values)
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
    stragglers.take(0, changed(start(0), worker=2))
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
    assert why(reading(0), reading(1, sm_clock_mhz=1410.0)) == ""
    assert why(reading(0, sm_clock_mhz=1980.0), reading(1)) == ""


def test_a_wait_for_a_core_is_the_reason_for_host_phases():
    host = on_host(1, 48.0)
    assert why(host, part="data") == "cores are short: rank 1 waits for one 48 % of the time"
    assert why(host) == ""
    assert why(on_host(1, 15.0), part="data") != ""
    assert why(on_host(1, 14.9), part="data") == ""


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
                step_ms = times.pop("step_ms")
                step = Step(
                    step=int(row["step"]),
                    segment=0,
                    finished_s=0.0,
                    step_ms=step_ms,
                    values=times | {f"{name}_ms": took for name, took in phases.items()},
                    parts_ms={"backward": parts} if parts else {},
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


# ── without noise: what is shown to the digit, and from where on ──────────────────────────────

EXACT_MS = 100.0
"""A step time of which a block holds ten steps."""


def exactly(stragglers, blocks, of_rank, ranks=2, first=0):
    """Train so many blocks, closed by the first step of the one after next; what is found then.

    `of_rank(block, step, rank)` says how many ms of the step are the rank's own: it waits for the
    others the rest. Or it gives other values of the step.
    """
    for number in range(10 * first, 10 * (first + blocks + 1) + 1):
        for rank in range(ranks):
            about = of_rank(number // 10, number, rank)
            about = about if isinstance(about, dict) else {"own_ms": about}
            about = {"own_ms": 80.0, "samples": 8, "data_ms": 0.0, "host_ms": 0.0, **about}
            own_ms = about.pop("own_ms")
            values = {name: about.pop(name) for name in ("data_ms", "host_ms")}
            values |= {"forward_ms": own_ms, "communication_ms": EXACT_MS - own_ms}
            step = Step(
                step=number,
                segment=0,
                tokens=None,
                finished_s=number * EXACT_MS / 1e3,
                step_ms=EXACT_MS,
                values=values,
                **about,
            )
            progress = Progress(until_s=0.0, steps=(step,), total_steps=0, total_samples=0)
            stragglers.take(rank, progress)
    return stragglers.found()


def fresh(ranks=2, kind="cuda"):
    return begin(Ranks(ranks, kind=kind))


def late_by(*more_ms):
    """Each rank's own time is longer by this, in all steps."""
    return lambda _block, _step, rank: 80.0 + more_ms[rank]


def test_a_rank_is_named_after_eight_blocks_with_its_excess_and_the_others_wait():
    assert exactly(fresh(), 7, late_by(0, 10)) is None
    named = exactly(fresh(), 8, late_by(0, 10))
    assert (named.rank, named.phase, named.kind) == (1, "forward", "persistent")
    assert (named.excess_ms, named.slower_pct, named.others_wait_ms) == (10.0, 10.0, 10.0)


@pytest.mark.parametrize(("pct", "is_named"), [(1.49, False), (1.5, False), (1.51, True)])
def test_a_rank_is_named_from_a_delay_of_1_5_percent_on(pct, is_named):
    assert bool(exactly(fresh(), 8, late_by(0, pct))) == is_named


@pytest.mark.parametrize(("swing_ms", "is_named"), [(2.2, True), (2.4, False)])
def test_a_delay_that_swings_from_block_to_block_has_to_be_larger(swing_ms, is_named):
    """Its standard error is swing / √7, and 4.9 of those may not bring 5 ms below 0.75 ms."""

    def of_rank(block, _step, rank):
        return 80.0 + rank * (5.0 + swing_ms * (-1) ** block)

    assert bool(exactly(fresh(), 8, of_rank)) == is_named


@pytest.mark.parametrize(
    ("later", "rank"),
    [
        ((0, 8.0, 9.9, 0), 1),  # more than 80 % of the largest delay
        ((0, 7.9, 9.9, 0), 2),
        ((0, 0.9, 0, 0), 1),  # more than half of the threshold
        ((0, 0.75, 0, 0), None),
    ],
)
def test_a_named_rank_stays_named_for_less_than_it_was_named_for(later, rank):
    stragglers = fresh(4)
    assert exactly(stragglers, 12, late_by(0, 10, 0, 0), ranks=4).rank == 1
    named = exactly(stragglers, 41, late_by(*later), ranks=4, first=13)
    assert (named and named.rank) == rank


@pytest.mark.parametrize(("part", "least_pct"), [("data", 1.5), ("host", 3.0)])
def test_a_hidden_excess_is_named_with_its_size_and_stays_named_down_to_half(part, least_pct):
    def waits(ms):
        return lambda _block, _step, rank: {f"{part}_ms": 10.0 + ms * rank}

    stragglers = fresh()
    named = exactly(stragglers, 8, waits(10.0))
    assert (named.rank, named.phase, named.others_wait_ms) == (1, part, None)
    assert (named.excess_ms, named.slower_pct) == (10.0, 10.0)
    assert exactly(stragglers, 41, waits(0.6 * least_pct), first=9).phase == part
    assert exactly(stragglers, 41, waits(0.4 * least_pct), first=51) is None
    assert exactly(fresh(), 8, waits(0.9 * least_pct)) is None
    assert exactly(fresh(kind="cpu"), 8, waits(10.0)) is None


def turns(pattern, late_ms=10.0):
    """A rank is late in some blocks: in turn those of the pattern, None for none."""

    def of_rank(block, _step, rank):
        return 80.0 + late_ms * (pattern[block % len(pattern)] == rank)

    return of_rank


HALF, QUARTER = (0, None, 1, None), (0, None, None, None, 1, None, None, None)


def test_ranks_that_take_turns_are_reported_if_one_is_late_in_half_of_the_blocks():
    named = exactly(fresh(), 8, turns(HALF))
    assert (named.kind, named.rank) == ("wandering", 1)
    assert (named.excess_ms, named.slower_pct, named.others_wait_ms) == (10.0, 10.0, 5.0)
    assert exactly(fresh(), 9, turns(HALF)).rank == 0  # of the newest of them
    assert exactly(fresh(), 40, turns(QUARTER)) is None
    stragglers = fresh()
    exactly(stragglers, 39, turns(HALF))
    assert exactly(stragglers, 80, turns(QUARTER), first=40).kind == "wandering"


def test_two_changes_of_the_late_rank_are_enough_and_one_is_a_recovery():
    twice, once = (0, 0, 0, 1, 1, 1, 0, 0), (0, 0, 0, 0, 1, 1, 1, 1)
    assert exactly(fresh(), 8, turns(twice)).kind == "wandering"
    assert exactly(fresh(), 8, turns(once)) is None


@pytest.mark.parametrize(("late_ms", "is_late"), [(4.96, False), (5.0, False), (5.1, True)])
def test_in_a_single_block_a_rank_is_late_from_5_percent_on(late_ms, is_late):
    assert bool(exactly(fresh(), 8, turns(HALF, late_ms))) == is_late


def sized(own_ms=10.0, unlike=(), *, heavier_last=False):
    """In each step one of two ranks has more samples and works longer; `unlike`: fewer samples."""

    def of_rank(block, step, rank):
        first_has_more = step % 2 == 0
        if heavier_last and block >= 7:
            first_has_more = step % 10 in (0, 2, 4, 6)
        has_more = first_has_more == (rank == 0)
        is_large = has_more != (step % 10 in unlike)
        return {"own_ms": 80 + own_ms * (1 if has_more else -1), "samples": 120 if is_large else 80}

    return of_rank


def test_unequal_batches_are_reported_with_the_part_of_the_time_that_follows_them():
    named = exactly(fresh(), 8, sized())
    deviation_ms = 10 * (10 / 9) ** 0.5
    assert (named.kind, named.rank) == ("imbalance", 0)
    assert named.excess_ms == pytest.approx(deviation_ms)
    assert named.slower_pct == pytest.approx(deviation_ms)  # of 100 ms
    assert named.others_wait_ms == pytest.approx(10.0)
    assert exactly(fresh(), 8, sized(heavier_last=True)).rank == 1  # in the newest block
    assert exactly(fresh(), 8, sized(own_ms=4.98)) is None  # a wait below 5 %
    assert exactly(fresh(), 8, sized(unlike=(2, 3))) is None  # samples explain 36 % of the variance


@pytest.mark.parametrize(("samples", "kind"), [(110, "imbalance"), (102, "persistent")])
def test_a_late_rank_has_more_work_if_that_explains_half_of_its_delay(samples, kind):
    def of_rank(_block, _step, rank):
        return {"own_ms": 80.0 + 10 * rank, "samples": samples if rank else 100}

    assert exactly(fresh(), 8, of_rank).kind == kind


def test_a_late_rank_whose_work_is_unknown_has_no_more_of_it():
    def of_rank(_block, _step, rank):
        late = rank == 1
        return {"own_ms": 80.0 + 10 * late, "samples": None if late else 100}

    assert exactly(fresh(3), 8, of_rank, ranks=3).kind == "persistent"
