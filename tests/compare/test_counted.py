"""What two trainings differ by exactly, from what each of their steps has."""

import pytest

from gpudash.compare.counted import changes, phase_lost

LOGS = (0, 0, 0, 1, 0, 0, 0, 0, 0, 0)


def told(counter, before, after):
    return [one.sentence for one in changes({counter: before}, {counter: after})]


@pytest.mark.parametrize(
    ("counter", "before", "after", "says"),
    [
        ("syncs", {}, {"item at t.py:31": (4,) * 10}, "4 syncs a step more: item at t.py:31"),
        ("operators", {"relu": (2,) * 10}, {"relu": (1,) * 10}, "1 operator a step fewer: relu"),
        ("operators", {"relu": (1,)}, {"gelu": (1,)}, "other operators: gelu in place of relu"),
        ("copies", {"a": (1,)}, {"a": (2,)}, "1 copy a step more: a"),
        ("peak memory", {"": (800.0,)}, {"": (900.0,)}, "peak memory: 900 MiB instead of 800 MiB"),
        ("syncs", {"item at a.py:9": LOGS}, {"item at a.py:9": LOGS, "item at a.py:5": (1,) * 10},
         "1 sync a step more: item at a.py:5"),
        ("launches", {"k": (5, 9, 7)}, {"k": (10, 14, 11)}, "4 launches a step more: k"),
    ],
)  # fmt: skip
def test_a_change_is_one_sentence(counter, before, after, says):
    assert told(counter, before, after) == [says]


@pytest.mark.parametrize(
    ("counter", "before", "after"),
    [
        ("operators", {"item": LOGS}, {}),  # the script logs
        ("launches", {"k": (5, 9, 7)}, {"k": (9, 14, 11)}),  # steps differ anyway
        ("launches", {"tile 64": (3,)}, {"tile 128": (3,)}),  # another kernel of the library
        ("syncs", {"item at a.py:31": (1,)}, {"item at a.py:32": (1,)}),  # lines move
        ("peak memory", {"": (800.0,)}, {"": (806.0,)}),
    ],
)
def test_what_starts_differ_by_is_no_change(counter, before, after):
    assert told(counter, before, after) == []


def test_what_one_side_alone_can_count_is_not_compared():
    assert [*changes({"syncs": {"item": (1,)}}, {})] == []


def test_the_phase_that_lost_is_longer_beyond_the_noise_of_the_starts():
    noise = (0.0, 0.02, -0.01, 0.01, -0.02, 0.0)
    starts = [
        ({"forward": 2.0, "backward": 5.0 + one}, {"forward": 2.0 + one, "backward": 6.0 - one})
        for one in noise
    ]
    assert phase_lost(starts).sentence == "backward takes 1 ms a step longer"
    assert phase_lost([(b, a) for a, b in starts]) is None
    assert phase_lost(starts[:2]) is None
