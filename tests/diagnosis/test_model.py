"""A step of the model takes as long as its schedule, played activity by activity."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpudash.diagnosis.model import AHEAD, Model, launch_alone_ms, played_ms
from gpudash.diagnosis.parts import DATA, DEVICE, LAUNCH, WAIT, Times
from tests.diagnosis.schedule import Work, period_ms

MS = st.floats(0.0, 20.0)


def schedule_of(times):
    """The activities of a step on host and device. A copy may block the host that begins it."""
    copied = "copy" if times.blocks else "launch alone"
    alone_ms = launch_alone_ms(times)
    return (
        Work("data", "host", times.data, behind=(("end", 1 if times.waits else AHEAD),)),
        Work("your code", "host", times.beside_launches, after=("data",)),
        Work("launch alone", "host", alone_ms, after=("your code",)),
        Work("copy", "device", times.copy, after=("launch alone",)),
        Work("launch", "host", times.launch - alone_ms, after=(copied,)),
        Work("device", "device", times.device, after=("copy",), ends_after=("launch",)),
        Work("end", "device", times.communication, after=("device",)),
    )


@given(
    st.builds(
        Times,
        step=MS,
        loader=st.just(0.0),
        data=MS,
        no_core=MS,
        rollout=MS,
        code=MS,
        blocked=MS,
        collecting=MS,
        compiling=MS,
        allocating=MS,
        launch=MS,
        alone=MS,
        waits=st.booleans(),
        copy=MS,
        blocks=st.booleans(),
        communication=MS,
        device=MS,
    )
)
@example(Times(step=0.0, launch=1.0, communication=1.0, blocks=True))  # the copy waits for it
def test_the_period_of_a_step_is_that_of_its_schedule(times):
    assert abs(played_ms(times) - period_ms(schedule_of(times))) < 1e-6


def test_without_the_longest_part_a_step_lasts_as_long_as_the_next():
    model = Model((Times(step=10.0, launch=6.0, device=10.0),))
    assert model.without(DEVICE) == (4.0, 4.0)
    assert model.without(LAUNCH) == (0.0, 0.0)
    assert model.residual == 0.0


def test_schedules_that_differ_give_a_range():
    ahead = Times(step=10.0, launch=10.0, device=6.0)
    model = Model((ahead, ahead._replace(waits=True, launch=5.0, alone=4.0)))
    assert model.without(WAIT) == (0.0, 4.0)


def test_launches_beside_the_devices_work_stay_beside_it_when_that_becomes_less():
    """A host reads the loss of a step of 37 ms, all of them the device's, in 6 ms of launches."""
    full = Times(step=37.0, launch=6.0, device=37.0, waits=True)
    assert played_ms(full._replace(device=5.0)) == 6.0
    assert Model((full,)).slope(DEVICE).low == pytest.approx(1.0)
    idle = full._replace(device=33.0, alone=4.0)  # it idles until the first launches come
    assert played_ms(idle) == 37.0
    assert played_ms(idle._replace(device=3.0)) == 7.0


def test_a_copy_that_blocks_the_host_waits_for_the_kernels_before_it():
    """Slowing the device of such a training by a tenth made a step longer by as much."""
    blocked = Times(step=10.0, launch=2.0, copy=7.0, blocks=True, device=3.0)
    model = Model((blocked,))
    assert (model.residual, model.slope(DEVICE)) == (0.0, (1.0, 1.0))


def test_batches_that_the_host_makes_are_hidden_by_nothing():
    """Slowing them made a step longer by as much; a loader worker's may be hidden."""
    inline = Times(step=10.0, data=8.0, is_inline=True, launch=2.0)
    assert Model((inline,)).slope(DATA).low > 0.99
    assert Model((inline._replace(is_inline=False),)).slope(DATA) == (0.0, 0.0)
