"""What slowing a part of the step proves, and what it takes back."""

import pytest

from gpudash.diagnosis.headline import headline, why_lines
from gpudash.protocol.session import Slope, SlowingShown
from gpudash.trace.summary import Summary
from tests.diagnosis.trainings import answered, ask, changed, gpu_step, measured


def slowed(snapshot, *, is_over=True, **ends):
    """The training after its parts were slowed: `part=(low, high)` of the slope."""
    slopes = tuple(
        Slope(part=part, slope=sum(each) / 2, low=each[0], high=each[1])
        for part, each in ends.items()
    )
    return changed(snapshot, slowing=SlowingShown(delay_ms=1.0, slopes=slopes, is_over=is_over))


GPU_BOUND = {"device": (0.9, 1.1), "host": (-0.1, 0.1), "loader": (-0.1, 0.1)}


def test_a_slope_above_a_half_proves_the_limit():
    answer = answered(slowed(gpu_step(), **GPU_BOUND)).answer
    assert (answer.limit, answer.is_proven) == ("gpu", True)
    clause = "GPU-bound is proven: slowing the device by 1.00 ms adds 1.00 ± 0.10 ms to a step"
    assert answer.evidence[0] == clause


def test_a_slope_below_a_half_withdraws_the_answer():
    answer = answered(slowed(gpu_step(), device=(-0.1, 0.1), host=(0.2, 0.7))).answer
    assert (answer.limit, answer.is_proven) == ("none", False)
    assert answer.title == "unclear, because slowing shows something else"
    assert answer.evidence[0].startswith("GPU-bound is withdrawn: slowing the device")
    assert answer.tries == ()


def test_the_one_part_that_is_proven_takes_the_place_of_a_withdrawn_limit():
    slopes = {"device": (-0.1, 0.1), "host": (-0.1, 0.1), "loader": (0.8, 1.2)}
    answer = answered(slowed(gpu_step(), **slopes)).answer
    assert (answer.limit, answer.title, answer.is_proven) == ("data", "input-bound", True)
    assert answer.evidence[0].startswith("GPU-bound is withdrawn: slowing the device")
    assert answer.evidence[1:] == ("slowing the loader by 1.00 ms adds 1.00 ± 0.20 ms to a step",)


@pytest.mark.parametrize("device", [(0.3, 0.7), (0.45, 1.2)])
def test_an_interval_around_a_half_neither_proves_nor_withdraws(device):
    answer = answered(slowed(gpu_step(), device=device)).answer
    assert (answer.limit, answer.is_proven) == ("gpu", False)
    assert answer.slopes


def waiting(**ends):
    """The host waits for the device within a phase."""
    profile = Summary(steps=10, step_ms=10.0, on_device=True, busy_ms=5.0, blocked_ms=4.0)
    return answered(slowed(measured(host_ms=9.9, device_ms=9.9), **ends), profile=profile).answer


def test_a_wait_behind_which_no_delay_came_is_untested():
    """A delay between two phases is hidden by what was launched behind the wait."""
    answer = waiting(host=(-0.1, 0.1), device=(0.9, 1.1))
    assert (answer.limit, answer.is_proven) == ("sync", False)
    assert answer.evidence[0].startswith("sync-bound is untested: slowing the host by 1.00 ms")
    assert waiting(host=(0.9, 1.1), device=(0.9, 1.1)).is_proven
    assert waiting(host=(0.9, 1.1), device=(-0.1, 0.1)).limit == "host"


def test_slopes_keep_the_schedules_that_agree_with_them():
    """A host that is ahead, and one that waits for the device, look alike until one is slowed."""
    times = {"host_ms": 9.5, "device_ms": 9.0, "gpu_util_pct": 60.0}
    ambiguous = changed(measured(**times), workload="train.py")
    before = {one.part: (one.low_ms, one.high_ms) for one in answered(ambiguous).answer.parts}
    ahead = slowed(ambiguous, host=(0.9, 1.1), device=(-0.1, 0.1))
    after = {one.part: (one.low_ms, one.high_ms) for one in answered(ahead).answer.parts}
    assert "wait" in before
    assert "wait" not in after


def test_while_parts_are_slowed_the_headline_says_so():
    shown = headline(slowed(gpu_step(), is_over=False, **GPU_BOUND))
    assert shown.kind == "comparing"
    assert shown.title == "slowing one part of the step after another, round 1"


def test_slopes_stand_beside_the_parts_that_were_slowed():
    (line,) = [one for one in why_lines(ask(slowed(gpu_step(), **GPU_BOUND))) if "  device" in one]
    assert line.endswith("1.00 ± 0.10")
    (line,) = [one for one in why_lines(ask(gpu_step())) if "  device" in one]
    assert line.endswith("–")


@pytest.mark.parametrize(
    ("device", "said"), [((0.9, 1.1), "proven: device"), ((0.2, 1.4), "nothing is proven")]
)
def test_why_says_what_slowing_has_proven(device, said):
    lines = why_lines(ask(slowed(gpu_step(), device=device)))
    assert f"  1: a step grows by the whole delay, 0: by none; {said}" in lines


def test_a_step_that_is_mostly_unexplained_has_no_answer():
    answer = answered(measured(host_ms=2.0, device_ms=2.0)).answer
    assert (answer.limit, answer.tries) == ("none", ())
    assert answer.title == "unclear, because 80 % of the step is unexplained"
