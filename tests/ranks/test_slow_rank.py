"""The slow rank: which rank is named, for which phase, when, and when none is."""

import csv
import random
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from gpudash.protocol.readings import GpuReading, HostReading
from gpudash.protocol.training import Progress, Step
from gpudash.ranks.slow_rank import Stragglers
from tests.having import having
from tests.simulated_ranks import PARTS_MS, STEP_MS, Ranks, start

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


def found(ranks, seconds=30.0, stragglers=None, told=lambda _rank, step: step):
    """The stragglers found as rank 0 reports, without repeats; `told` is what is told of a step."""
    stragglers = stragglers or begin(ranks)
    seen = [None]
    for rank, progress in ranks.train(seconds):
        as_told = tuple(told(rank, step) for step in progress.steps)
        stragglers.take(rank, changed(progress, steps=as_told))
        if rank == 0 and (found := stragglers.found()) != seen[-1]:
            seen.append(found)
    return seen


def last(ranks, seconds=30.0):
    return found(ranks, seconds)[-1]


def cut(late_ms=0.0, *, unlike=False):
    """Cut backward passes in two; rank 1 is late at the end of the first, or cuts in three."""

    def told(rank, step):
        whole_ms = step.values.get("backward_ms")
        if whole_ms is None:
            return step
        first_ms = 0.6 * whole_ms + late_ms * rank
        parts = first_ms, whole_ms - first_ms
        if unlike and rank == 1:
            parts = parts[0] + 2.0, parts[1] - 3.0, 1.0
        return changed(step, parts_ms={"backward": parts})

    return told


@pytest.mark.parametrize("late_ms", [of_step(3), of_step(10)])
def test_a_rank_is_named_that_is_late_within_its_backward_pass_and_has_caught_up_by_its_end(
    late_ms,
):
    *_, named = found(Ranks(2, seed=3), told=cut(late_ms))
    assert (named.rank, named.phase, named.kind) == (1, "backward", "persistent")
    assert named.excess_ms == pytest.approx(late_ms, rel=0.35)


def test_equal_ranks_with_cut_backward_passes_give_no_alarm_nor_do_those_that_cut_unlike():
    assert found(Ranks(4, seed=5), 60, told=cut()) == [None]
    assert found(Ranks(2, seed=6), 30, told=cut(unlike=True)) == [None]


# ── rank and phase ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("part", "pct", "ranks"),
    [*((part, 3, 2) for part in PARTS), ("data", 5, 4), ("backward", 20, 8)],
)
def test_a_slow_rank_is_named_with_its_phase_and_no_other_ever_is(part, pct, ranks):
    seen = found(Ranks(ranks, seed=pct, delay=slow(1, **{part: of_step(pct)})))
    assert {(one.rank, one.phase, one.kind) for one in seen if one} == {(1, part, "persistent")}
    assert seen[-1] == having(
        excess_ms=pytest.approx(of_step(pct), rel=0.35),
        slower_pct=pytest.approx(pct, rel=0.45),
        others_wait_ms=pytest.approx(of_step(pct), rel=0.35),
    )


@pytest.mark.parametrize(("pct", "ranks", "seed"), [(3, 2, 0), (10, 8, 3)])
def test_a_slower_clock_is_in_all_that_is_computed_and_in_no_single_phase(pct, ranks, seed):
    computed = {name: PARTS_MS[name] for name in ("forward", "backward", "optimizer")}
    longer = {name: pct / 100 * ms for name, ms in computed.items()}
    named = last(Ranks(ranks, seed=seed, delay=slow(1, **longer)))
    assert (named.rank, named.phase, named.kind) == (1, "compute", "persistent")
    assert named.excess_ms == pytest.approx(sum(longer.values()), rel=0.35)


def test_a_rank_that_becomes_slow_later_is_named_within_30_s():
    def delay(step, rank):
        return {"forward": of_step(3)} if rank == 3 and step > steps(32) else {}

    ranks = Ranks(4, delay=delay)
    stragglers = begin(ranks)
    assert found(ranks, 30, stragglers) == [None]
    assert found(ranks, 32, stragglers)[-1].rank == 3


@pytest.mark.parametrize(
    ("ranks", "jitter", "seconds"), [(2, 0.05, 60), (4, 0.1, 60), (16, 0.03, 24)]
)
def test_ranks_that_differ_as_two_gpus_do_give_no_alarm(ranks, jitter, seconds):
    assert found(Ranks(ranks, seed=ranks, jitter=jitter, spread=0.0025), seconds) == [None]


def test_a_slow_rank_on_cpus_is_named_too():
    assert last(Ranks(4, kind="cpu", delay=slow(0, data=of_step(10)))).phase == "data"


def test_a_delay_spread_over_phases_is_named_without_a_phase():
    spread_out = dict.fromkeys(("copy", "forward", "your_code", "optimizer"), of_step(3))
    seen = last(Ranks(4, delay=slow(1, **spread_out)))
    assert (seen.rank, seen.phase) == (1, "")
    assert seen.excess_ms == seen.others_wait_ms


# ── delays hidden by a host that runs ahead ───────────────────────────────────────────────────


def test_a_host_that_waits_in_launches_is_not_busier_because_another_waits_for_data():
    ranks = Ranks(2, hides=True, delay=lambda _, rank: {"data" if rank == 1 else "host": 8.0})
    assert {(one.rank, one.phase) for one in found(ranks) if one} == {(1, "data")}


@pytest.mark.parametrize("each", [2, 4, 8])
def test_a_rank_is_named_whose_loader_workers_have_so_many_batches_at_once(each):
    stragglers, long_ms = fresh(), 300.0 * each
    for number in range(1, 4000 // each):
        waits_ms = 0.0 if number % each else long_ms
        for rank in (0, 1):
            named = "data_ms" if rank else "communication_ms"
            values = {"forward_ms": 20.0, "communication_ms": 5.0, "data_ms": 0.0, named: waits_ms}
            one = Step(
                step=number, segment=0, finished_s=0.0, step_ms=25.0 + waits_ms, values=values
            )
            stragglers.take(rank, told(one))
    named = stragglers.found()
    assert (named.rank, named.phase, named.kind) == (1, "data", "persistent")
    assert named.excess_ms == pytest.approx(300.0, rel=0.1)


# ── changing ranks and unequal batches ──────────────────────────────────────


@pytest.mark.parametrize(("ranks", "turn_s"), [(2, 2), (8, 4)])
def test_a_slow_rank_that_changes_is_wandering(ranks, turn_s):
    def delay(step, rank):
        return {"backward": 3.0} if rank == int(step / steps(turn_s)) % ranks else {}

    seen = found(Ranks(ranks, delay=delay), 60)
    assert (seen[-1].kind, seen[-1].phase) == ("wandering", "backward")


def test_batches_of_other_lengths_in_each_step_are_an_imbalance():
    def tokens(step, rank):
        return random.Random(100 * step + rank).randint(600, 1400)

    seen = last(Ranks(4, tokens=tokens, delay=lambda *at: {"backward": tokens(*at) / 100}))
    assert (seen.kind, seen.phase, seen.why) == ("imbalance", "", "another rank in each step")
    assert seen.others_wait_ms > 1.0


# ── when nothing is claimed ─────────────────────────────────────────────────────────────


def test_steps_may_become_faster_and_skip_blocks_at_once():
    stragglers = begin(Ranks(2))
    for number, step_ms in ((1, 5000.0), (8, 1.0), (9, 1.0), (12, 1.0), (13, 1.0), (24, 1.0)):
        values = {"forward_ms": step_ms, "communication_ms": 0.0}
        step = Step(step=number, segment=0, finished_s=0.0, step_ms=step_ms, values=values)
        stragglers.take(0, told(step))
    assert stragglers.found() is None


@pytest.mark.parametrize("is_there", ["joins late", "dies"])
def test_a_rank_that_trains_only_for_a_part_of_the_time_is_not_slow(is_there):
    ranks = Ranks(4, seed=7)
    stragglers = begin(ranks)
    for rank, progress in ranks.train(40):
        early = progress.until_s < 15.0
        if rank != 3 or early == (is_there == "dies"):
            stragglers.take(rank, progress)
            assert stragglers.found() is None


def test_clocks_of_nodes_are_not_compared():
    def told(rank, step):
        return changed(step, finished_s=step.finished_s + 5000.0 * rank)

    assert found(Ranks(2, delay=slow(1, backward=2.0)), told=told)[-1].rank == 1


def test_a_start_forgets_what_was_before():
    ranks = Ranks(2, delay=slow(1, backward=5.0))
    stragglers = begin(ranks)
    assert found(ranks, stragglers=stragglers)[-1] is not None
    stragglers.take(0, changed(start(0), worker=2))
    assert stragglers.found() is None


def test_with_other_settings_the_ranks_are_compared_anew():
    stragglers = fresh()
    assert exactly(stragglers, 8, late_by(0, 10)).rank == 1
    assert exactly(stragglers, 7, late_by(0, 0), first=10, segment=1) is None
    assert not stragglers.are_compared
    assert exactly(stragglers, 8, late_by(10, 0), first=20, segment=2).rank == 0


# ── why ─────────────────────────────────────────────────────────────────────────────────


@cache
def trained(part):
    """What found rank 1 slower in this part."""
    ranks = Ranks(2, delay=slow(1, **{part: 3.0}))
    stragglers = begin(ranks)
    assert found(ranks, 15, stragglers)[-1].phase == part
    return stragglers


def reading(gpu, at_s=0.0, **values):
    uuid = f"GPU-{gpu}"
    return 0, GpuReading(at_s=at_s, index=gpu, uuid=uuid, name="NVIDIA H200", values=values)


def clocks(*mhz):
    return [reading(gpu, sm_clock_mhz=one) for gpu, one in enumerate(mhz)]


def waits(*pct):
    """How long ranks wait for a core, None for one of which that is unknown."""
    read = [HostReading(at_s=0.0, values={"core_wait_pct": one}) for one in pct]
    return [(rank, one) for rank, one in enumerate(read) if pct[rank] is not None]


def owned(**pct):
    """Which shares of the host's time each rank reports: two a name."""
    told = Progress(until_s=0.0, steps=(), total_steps=0, total_samples=0)
    return [
        (rank, changed(told, values={f"{name}_pct": both[rank] for name, both in pct.items()}))
        for rank in (0, 1)
    ]


USUAL = reading(0, sm_clock_mhz=1980.0, throttle="none", temperature_c=60.0)
CAPPED = reading(1, sm_clock_mhz=1410.0, throttle="sw_power_cap", temperature_c=61.0)
HOT = reading(1, sm_clock_mhz=1980.0, throttle="hw_thermal_slowdown", temperature_c=88.0)
CLOCK = "its clock is 1,410 MHz, the others' 1,980 MHz"
SLOWER = clocks(1980.0, 1410.0)
LOWER_AT_LAST = [
    reading(gpu, at_s=at_s, sm_clock_mhz=1785.0 if gpu and at_s >= 9 else 1980.0)
    for at_s in range(18)
    for gpu in (0, 1)
]
WAITS_AT_LAST = [
    (rank, HostReading(at_s=at_s, values={"core_wait_pct": 80.0 if rank and at_s == 17 else 3.0}))
    for at_s in range(18)
    for rank in (0, 1)
]
ALONE = "cores are short: rank 1 waits for one 48 % of the time"
MORE = f"{ALONE}, the others 3 %"
WHY = {
    # what only its GPU shows is the reason
    "a power cap": ([USUAL, CAPPED], "backward", f"power cap on GPU 1, {CLOCK}"),
    "heat": ([USUAL, HOT], "backward", "heat on GPU 1, 88 °C"),
    "a clock": ([USUAL, *SLOWER[1:]], "backward", CLOCK),
    # a GPU is none for what is not computed
    "a clock in the forward pass": (SLOWER, "forward", CLOCK),
    "a clock in a copy": (SLOWER, "copy", ""),
    "a clock in the data": (SLOWER, "data", ""),
    "a clock that is lower for a moment": (LOWER_AT_LAST[:20], "backward", ""),
    "a clock that has become lower": (LOWER_AT_LAST, "backward", CLOCK.replace("1,410", "1,785")),
    # nor is what all show
    "the cap of both": ([CAPPED, reading(0, **CAPPED[1].values)], "backward", ""),
    "a cap beside nothing": ([reading(1, throttle="sw_power_cap")], "backward", ""),
    "nothing": ([], "backward", ""),
    "a clock beside none": ([reading(0), *SLOWER[1:]], "backward", ""),
    "no clock": ([*SLOWER[:1], reading(1)], "backward", ""),
    # a wait for a core is the reason for host phases, if it is the rank's own beside the others'
    "a wait for a core": (waits(None, 48.0), "data", ALONE),
    "a wait for a core in a pass": (waits(None, 48.0), "backward", ""),
    "15 %": (waits(None, 15.0), "data", ALONE.replace("48", "15")),
    "less": (waits(None, 14.9), "data", ""),
    "longer than the others": (waits(3.0, 48.0), "data", MORE),
    "shorter": (waits(48.0, 3.0), "data", ""),
    # for what is computed, as a host launches late, if it alone waits
    "it alone": (waits(3.0, 48.0), "backward", MORE),
    "both": (waits(44.0, 48.0), "backward", ""),
    "not enough more for half of the delay": (waits(14.0, 20.0), "data", ""),
    "it alone in a copy": (waits(3.0, 48.0), "copy", ""),
    # so is what else has its host's time, if that explains half of the delay: 19 % here
    "blocked": (
        owned(blocked=(1.0, 18.0)),
        "your_code",
        "rank 1 waits off the CPU 18 % of the time, the others 1 %",
    ),
    "the garbage collector": (
        owned(blocked=(1.0, 2.0), gc=(0.0, 17.0)),
        "forward",
        "rank 1 collects garbage 17 % of the time, the others 0 %",
    ),
    "batches made in the training's process": (
        owned(unpack=(2.0, 17.0)),
        "data",
        "rank 1 makes or unpacks batches 17 % of the time, the others 2 %",
    ),
    "what others have too": (owned(blocked=(12.0, 18.0)), "your_code", ""),
    "an owner of one rank alone": (owned(blocked=(1.0, 18.0))[1:], "your_code", ""),
    "a wait for a core beside an owner that has less": (
        [*waits(3.0, 48.0), *owned(blocked=(1.0, 18.0))],
        "your_code",
        MORE,
    ),
    "an owner beside a wait for a core that is shorter": (
        [*waits(3.0, 18.0), *owned(blocked=(1.0, 18.0))],
        "your_code",
        "rank 1 waits off the CPU 18 % of the time, the others 1 %",
    ),
    "a wait for a core of a moment": (WAITS_AT_LAST, "data", ""),
    "it alone beside a clock": ([*SLOWER, *waits(3.0, 48.0)], "backward", CLOCK),
}


@pytest.mark.parametrize(("readings", "part", "reason"), WHY.values(), ids=WHY)
def test_the_reason_is_what_is_read_of_the_slow_rank_alone(readings, part, reason):
    stragglers = deepcopy(trained(part))
    for rank, one in readings:
        stragglers.take(rank, one)
    assert stragglers.found().why == reason


# ── two H200s ───────────────────────────────────────────────────────────────────────────


def recorded(slow_in):
    """Steps of two real ranks, one of them slower by 5 % of a step of 14.1 ms."""
    with Path(__file__).with_name("h200_ranks.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["slow_in"] == slow_in:
                ms = {
                    name.removesuffix("_ms"): float(cell)
                    for name, cell in row.items()
                    if cell and name not in NOT_MS
                }
                parts = tuple(ms.pop(name) for name in CUT if name in ms)
                step = Step(
                    step=int(row["step"]),
                    segment=0,
                    finished_s=0.0,
                    step_ms=ms.pop("step"),
                    values={f"{name}_ms": took for name, took in ms.items()},
                    parts_ms={"backward": parts} if parts else {},
                )
                yield row["slow_rank"], int(row["rank"]), told(step)


def told(step):
    return Progress(until_s=0.0, steps=(step,), total_steps=0, total_samples=0)


NOT_MS = ("slow_in", "slow_rank", "rank", "step")
CUT = ("backward_1", "backward_2", "backward_3", "backward_4")
"""Not recorded in all runs."""


@pytest.mark.parametrize("slow_in", ["data", "forward", "backward", "optimizer"])
def test_of_two_real_ranks_the_slow_one_is_named_whose_delay_slows_the_others_backward_pass(
    slow_in,
):
    stragglers = fresh()
    for slow_rank, rank, seen in recorded(slow_in):
        expected = slow_rank, slow_in
        stragglers.take(rank, seen)
    named = stragglers.found()
    assert (str(named.rank), named.phase) == expected


def test_two_real_ranks_that_differ_by_1_pct_give_no_alarm():
    stragglers = fresh()
    for _, rank, seen in recorded("quiet"):
        stragglers.take(rank, seen)
        assert stragglers.found() is None


# ── without noise: what is shown to the digit, and from where on ──────────────────────────────

EXACT_MS = 100.0
"""A step time of which a block holds ten steps."""


def exactly(stragglers, blocks, of_rank, ranks=2, first=0, segment=0):
    """Train so many blocks, closed by the first step of the one after next; what is found then.

    `of_rank(block, step, rank)` says how many ms of the step are the rank's own: it waits for the
    others the rest. Or it gives other values of the step.
    """
    for number in range(10 * first, 10 * (first + blocks + 1) + 1):
        for rank in range(ranks):
            about = of_rank(number // 10, number, rank)
            about = about if isinstance(about, dict) else {"own_ms": about}
            about = {"own_ms": 80.0, "samples": 8, "data_ms": 0.0, "host_ms": 0.0} | about
            samples, own_ms = about.pop("samples"), about.pop("own_ms")
            step = Step(
                step=number,
                segment=segment,
                tokens=None,
                samples=samples,
                finished_s=number * EXACT_MS / 1e3,
                step_ms=EXACT_MS,
                values=about | {"forward_ms": own_ms, "communication_ms": EXACT_MS - own_ms},
            )
            stragglers.take(rank, told(step))
    return stragglers.found()


def fresh(ranks=2, kind="cuda"):
    return begin(Ranks(ranks, kind=kind))


def late_by(*more_ms):
    """Each rank's own time is longer by this, in all steps."""
    return lambda _block, _step, rank: 80.0 + more_ms[rank]


def test_a_rank_is_named_after_eight_blocks_with_its_excess_and_the_others_wait():
    early, later = fresh(), fresh()
    assert exactly(early, 7, late_by(0, 10)) is None
    named = exactly(later, 8, late_by(0, 10))
    assert (early.are_compared, later.are_compared) == (False, True)
    assert (named.rank, named.phase, named.kind) == (1, "forward", "persistent")
    assert (named.excess_ms, named.slower_pct, named.others_wait_ms) == (10.0, 10.0, 10.0)


@pytest.mark.parametrize(("pct", "is_named"), [(1.49, False), (1.5, False), (1.51, True)])
def test_a_rank_is_named_from_a_delay_of_1_5_percent_on(pct, is_named):
    assert bool(exactly(fresh(), 8, late_by(0, pct))) == is_named


@pytest.mark.parametrize(("swing_ms", "is_named"), [(2.2, True), (2.4, False)])
def test_a_delay_that_swings_from_block_to_block_has_to_be_larger(swing_ms, is_named):
    """Its standard error is swing / √7, and 4.9 of those may not bring 5 ms below 0.75 ms."""
    named = exactly(
        fresh(), 8, lambda block, _, rank: 80.0 + rank * (5.0 + swing_ms * (-1) ** block)
    )
    assert bool(named) == is_named


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
    return lambda block, _, rank: 80.0 + late_ms * (pattern[block % len(pattern)] == rank)


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


def test_a_rank_that_is_always_late_is_the_slow_one_though_another_is_later_now_and_then():
    """As of eight ranks on two cores."""

    def of_rank(block, _step, rank):
        return 70.0 + {1: 10.0, 2: 20.0 if block in (1, 4, 6) else 0.0}.get(rank, 0.0)

    named = exactly(fresh(4), 12, of_rank, ranks=4)
    assert (named.rank, named.phase, named.kind) == (1, "forward", "persistent")


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


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(
    ("samples", "kind"), [(110, "imbalance"), (102, "persistent"), (None, "persistent")]
)
def test_a_late_rank_has_more_work_if_that_explains_half_of_its_delay(samples, kind, ranks):
    def of_rank(_block, _step, rank):
        late = rank == 1
        return {"own_ms": 80.0 + 10 * late, "samples": samples if late else 100}

    assert exactly(fresh(ranks), 8, of_rank, ranks=ranks).kind == kind
