"""A step lasts as long as the slowest circle of activities that wait for each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.diagnosis.schedule import Work, period_ms

MS = st.floats(0.01, 100)


def device(ms, launch_ms, ahead=2):
    return (
        Work("launch", "host", launch_ms, behind=(("kernels", ahead),)),
        Work("kernels", "device", ms, ends_after=("launch",)),
    )


@given(MS, MS)
def test_a_host_that_runs_ahead_hides_the_shorter_of_launches_and_kernels(kernels_ms, launch_ms):
    assert period_ms(device(kernels_ms, launch_ms)) == pytest.approx(max(kernels_ms, launch_ms))


@given(MS, MS, MS)
def test_a_host_that_waits_for_the_device_hides_only_what_it_launches_meanwhile(
    before_ms, launch_ms, kernels_ms
):
    works = [
        Work("before", "host", before_ms, behind=(("kernels", 1),)),
        Work("launch", "host", launch_ms, after=("before",)),
        Work("kernels", "device", kernels_ms, after=("before",), ends_after=("launch",)),
    ]
    assert period_ms(works) == pytest.approx(before_ms + max(launch_ms, kernels_ms))


@given(MS, MS, st.integers(1, 8))
def test_loader_workers_share_the_batches(batch_ms, step_ms, workers):
    works = [
        Work("load", "loader", batch_ms, behind=(("train", 2 * workers),), servers=workers),
        Work("train", "device", step_ms, after=("load",)),
    ]
    assert period_ms(works) == pytest.approx(max(batch_ms / workers, step_ms), rel=1e-6)


def test_without_batches_kept_ready_loading_and_training_take_turns():
    works = [
        Work("load", "loader", 3.0, behind=(("train", 1),)),
        Work("train", "device", 5.0, after=("load",)),
    ]
    assert period_ms(works) == pytest.approx(8)


@given(MS, MS, MS)
def test_less_of_anything_never_takes_longer(kernels_ms, launch_ms, less):
    before = period_ms(device(kernels_ms, launch_ms))
    assert period_ms(device(min(less, kernels_ms), launch_ms)) <= before + 1e-6
