"""Joules of a sample: a block's from the ticks around it, and the difference of two settings."""

from collections.abc import Callable
from math import sqrt
from random import Random

import pytest

from gpudash.compare.blocks import MeasuredBlock
from gpudash.compare.energy import of_blocks, of_starts
from gpudash.compare.meter import LEAST_S, BlockEnergy, EnergyMeter
from gpudash.compare.paired_t import estimate
from gpudash.compare.sequential import estimate_so_far
from gpudash.protocol.readings import EnergyTick

TICK_S = 0.1
MINE, OTHER = "GPU-1", "GPU-2"


def meter(
    power_w: Callable[[float], float] = lambda _: 300.0,
    *,
    seconds: float = 30.0,
    gpus: tuple[str, ...] = (MINE,),
    within_s: float = 0.0,
    seed: int = 0,
) -> EnergyMeter:
    """Return a meter with the ticks of GPUs that draw this much; their moments are so uncertain."""
    random, whole = Random(seed), EnergyMeter(len(gpus))
    for uuid in gpus:
        energy_j = 5000.0
        for count in range(int(seconds / TICK_S)):
            at_s = count * TICK_S
            energy_j += power_w(at_s - TICK_S / 2) * TICK_S
            stamped_s = at_s + random.uniform(-within_s, within_s)
            whole.add(EnergyTick(at_s=stamped_s, uuid=uuid, energy_j=energy_j, within_s=within_s))
    return whole


def joules(found: BlockEnergy | str) -> float:
    assert isinstance(found, BlockEnergy), found
    return found.joules


# ── of a block ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("began_s", [3.0, 3.01, 3.05, 3.099])
def test_a_block_between_two_ticks_has_its_own_energy(began_s: float):
    assert joules(meter().spent(began_s, began_s + 2.5)) == pytest.approx(750.0)


def test_the_energy_of_all_gpus_counts():
    assert joules(meter(gpus=(MINE, OTHER)).spent(3.03, 5.03)) == pytest.approx(1200.0)


def test_uncertain_moments_of_the_ticks_are_its_standard_error():
    errors, said = [], 0.0
    for seed in range(300):
        found = meter(within_s=0.004, seed=seed, seconds=8).spent(3.03, 5.53)
        errors.append(joules(found) - 750.0)
        said = found.within_j if isinstance(found, BlockEnergy) else 0.0
    spread = sqrt(sum(error**2 for error in errors) / len(errors))
    assert spread < said < 2 * spread


@pytest.mark.parametrize(
    ("whole", "began_s", "ended_s", "why"),
    [
        (meter(), 3.0, 3.0 + LEAST_S - 0.01, "blocks of less than 2 s"),
        (EnergyMeter(0), 3.0, 6.0, "it does not train on a GPU"),
        (EnergyMeter(1), 3.0, 6.0, "GPUs that train: 1, energy counters read: 0"),
        (meter(seconds=5), 3.0, 6.0, "the energy counter was not read all the time"),
        (
            meter(lambda at_s: -500 if at_s > 4 else 300),
            3.0,
            6.0,
            "the energy counter went backwards",
        ),
    ],
)
def test_without_the_ticks_there_is_a_reason_and_no_figure(
    whole: EnergyMeter, began_s: float, ended_s: float, why: str
):
    assert whole.spent(began_s, ended_s) == why


@pytest.mark.parametrize(("train", "read"), [(2, (MINE,)), (1, (MINE, OTHER))])
def test_the_gpus_that_train_and_no_others_have_to_be_read(train: int, read: tuple[str, ...]):
    whole = EnergyMeter(train)
    for uuid in read:
        whole.add(EnergyTick(at_s=0.0, uuid=uuid, energy_j=1.0, within_s=0.0))
    why = f"GPUs that train: {train}, energy counters read: {len(read)}"
    assert whole.spent(0.0, 3.0) == why


def test_a_gap_at_an_edge_is_not_interpolated():
    whole = EnergyMeter(1)
    for at_s in (0.0, 1.0, 1.1, 2.0, 4.0, 5.0):
        whole.add(EnergyTick(at_s=at_s, uuid=MINE, energy_j=300 * at_s, within_s=0.0))
    assert whole.spent(0.5, 3.5) == "the energy counter was not read all the time"


def test_both_edges_lie_between_the_two_ticks_around_them():
    whole, of_two = EnergyMeter(1), EnergyMeter(2)
    for count in range(10):  # squares: each tick is worth more than the one before
        tick = EnergyTick(at_s=0.4 * count, uuid=MINE, energy_j=1.0 * count**2, within_s=0.0)
        whole.add(tick)
        of_two.add(tick)
    assert joules(whole.spent(0.6, 3.0)) == pytest.approx((49 + 64) / 2 - (1 + 4) / 2)
    assert [whole.reaches(at_s) for at_s in (3.5, 3.6)] == [True, False]
    assert not of_two.reaches(3.5)


# ── of two settings ─────────────────────────────────────────────────────────────────────


def block(spent: BlockEnergy | str, samples: int | None = 1000) -> MeasuredBlock:
    return MeasuredBlock(number=0, steps=100, samples=samples, busy_s=2.5, energy=spent)


def pairs(*energies: tuple[float, float]) -> list[tuple[MeasuredBlock, MeasuredBlock]]:
    return [(block(BlockEnergy(a, 1.0)), block(BlockEnergy(b, 1.0))) for a, b in energies]


MEASURED = pairs((750, 600), (760, 605), (745, 600), (755, 601))


def test_joules_of_a_sample_have_their_uncertainty_and_a_change_with_its_interval():
    found, why = of_blocks(MEASURED, estimate)
    assert found is not None
    assert not why
    assert found.joules == pytest.approx((0.7525, 0.6015), rel=1e-3)
    assert all(0.0005 < within < 0.02 for within in found.within)
    assert (found.per, found.pairs, found.sensor) == ("sample", 4, 0.05)
    assert found.pairs_j[0] == pytest.approx((0.75, 0.6))
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.change < found.high < 0
    assert found.change == pytest.approx(0.6015 / 0.7525 - 1, rel=1e-3)


def test_without_samples_they_are_of_a_step():
    found, _ = of_blocks(
        [(block(BlockEnergy(750, 1), None), block(BlockEnergy(600, 1), None))] * 3, estimate
    )
    assert found is not None
    assert (found.per, found.joules[0]) == ("step", pytest.approx(7.5))


def test_a_pair_without_energy_is_left_out_and_with_no_other_the_reason_is_said():
    backwards = (block("the energy counter went backwards"), block(BlockEnergy(600, 1)))
    found, _ = of_blocks([*MEASURED, backwards], estimate)
    assert found is not None
    assert found.pairs == 4
    assert of_blocks([backwards] * 4, estimate) == (None, "the energy counter went backwards")
    assert of_blocks(MEASURED[:1], estimate) == (None, "too few pairs of blocks")


def test_over_several_starts_each_start_counts_once():
    one, _ = of_blocks(MEASURED, estimate)
    other, _ = of_blocks(pairs((750, 640), (750, 641), (751, 640)), estimate)
    whole = of_starts([one, other])
    assert whole is not None
    assert whole.pairs == 7
    assert whole.change == pytest.approx(sqrt(0.6015 / 0.7525 * 640.3 / 750.3) - 1, rel=1e-3)
    assert of_starts([one, None]) is None


# ── equal settings ──────────────────────────────────────────────────────────────────────


def recorded(seed: int, blocks: int = 200) -> list[float]:
    """Return the joules of a sample of blocks of equal settings: drift, and what ticks leave."""
    random = Random(seed)
    hot, found = 0.0, []
    for number in range(blocks):
        hot = 0.95 * hot + random.gauss(0, 0.002)
        began_s = 1 + 2.7 * number + random.uniform(0, TICK_S)
        power_w = 300 * (1 + hot)
        whole = meter(
            lambda _, w=power_w: w, seconds=5, within_s=0.005, seed=random.randrange(10**9)
        )
        spent = joules(whole.spent(1 + began_s % TICK_S, 3.5 + began_s % TICK_S))
        found.append(spent / 1000 * (1 + random.gauss(0, 0.003)))
    return found


@pytest.mark.parametrize(("method", "least"), [(estimate, 0.02), (estimate_so_far, 0.0)])
def test_equal_settings_differ_seldom_and_by_little(method: Callable[..., object], least: float):
    """Sixteen pairs of 2.5 s, drawn anew a thousand times from one recording."""
    blocks, random, alarms, halves = recorded(1), Random(2), 0, []
    for _ in range(1000):
        drawn = []
        for _ in range(16):
            at = random.randrange(len(blocks) - 1)
            pair = blocks[at], blocks[at + 1]
            drawn.append(pair if random.random() < 0.5 else pair[::-1])
        found, _ = of_blocks(pairs(*((1000 * a, 1000 * b) for a, b in drawn)), method)  # type: ignore[arg-type]  # one of two
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        alarms += not found.low <= 0 <= found.high
        halves.append((found.high - found.low) / 2)
    assert least <= alarms / 1000 <= 0.08
    assert max(halves) < 0.02
