"""Two measured sizes tell which batch fits; anything less tells nothing."""

import pytest

from gpudash.forecast import forecast


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
    found = forecast(points, capacity_mib)
    assert found is not None
    assert (found.fits, found.exceeds) == expected
    assert found.needed_mib(found.fits) <= capacity_mib < found.needed_mib(found.exceeds)


def test_it_says_which_sizes_it_comes_from():
    found = forecast({16: 160.0, 32: 1320.0, 64: 1640.0}, 2050.0)
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
    assert forecast(points, capacity_mib) is None
