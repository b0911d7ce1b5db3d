"""Two measured sizes tell which batch fits; anything less tells nothing."""

import pytest

from gpudash.forecast import Need, forecast


def needs(points, gaps=1.0):
    """What sizes need whose tensors take these MiB; the allocator holds `gaps` times as much."""
    return {size: Need(mib, mib * gaps) for size, mib in points.items()}


@pytest.mark.parametrize(
    ("points", "capacity_mib", "expected"),
    [
        # 1000 MiB and 10 MiB a sample
        ({32: 1320.0, 64: 1640.0}, 2050.0, (96, 112)),
        ({32: 1320.0, 64: 1640.0}, 1641.0, (64, 80)),
        ({32: 1320.0, 64: 1640.0}, 1100.0, (10, 12)),
        ({32: 1320.0, 64: 1640.0}, 1019.0, (1, 2)),
        ({2: 1020.0, 4: 1040.0}, 1000.0 + 10.0 * 4096, (4096, 5120)),
        # a smaller size says less of larger ones
        ({1: 5000.0, 32: 1320.0, 64: 1640.0}, 2050.0, (96, 112)),
    ],
)
def test_the_largest_batch_that_fits_and_the_next_one(points, capacity_mib, expected):
    found = forecast(needs(points), capacity_mib)
    assert found is not None
    assert (found.fits, found.exceeds) == expected
    assert found.held.at(found.fits) <= capacity_mib < found.tensors.at(found.exceeds)


def test_a_batch_fits_if_what_the_allocator_holds_does_and_does_not_if_its_tensors_do_not():
    found = forecast(needs({32: 1320.0, 64: 1640.0}, gaps=1.25), 2100.0)
    assert found is not None
    assert (found.fits, found.exceeds) == (64, 112)
    assert found.held.at(found.fits) <= 2100.0 < found.tensors.at(found.exceeds)


def test_gaps_that_do_not_grow_are_held_by_larger_batches_too():
    found = forecast({32: Need(1320.0, 1720.0), 64: Need(1640.0, 1740.0)}, 2050.0)
    assert found is not None
    assert (found.fits, found.exceeds) == (80, 112)


def test_it_says_which_sizes_it_comes_from():
    found = forecast(needs({16: 160.0, 32: 1320.0, 64: 1640.0}), 2050.0)
    assert str(found) == "batch 96 would fit, 112 would not (from the peaks at 32 and 64)"


@pytest.mark.parametrize(
    ("points", "capacity_mib"),
    [
        ({}, 2000.0),
        ({32: 1320.0}, 2000.0),
        ({32: 1320.0, 64: 1320.0}, 2000.0),
        ({32: 1320.0, 64: 1300.0}, 2000.0),
        ({32: 1320.0, 64: 1640.0}, 1009.0),
        ({32: 1320.0, 64: 1640.0}, None),
    ],
    ids=["none", "one size", "no growth", "less for more", "no room at all", "capacity unknown"],
)
def test_nothing_is_foretold_of(points, capacity_mib):
    assert forecast(needs(points), capacity_mib) is None
