"""What a source does not know of a step is not measured: never 0, and nothing else suffers."""

import msgspec
import pytest

from gpudash.protocol.training import Progress
from gpudash.recording.intervals import Intervals
from gpudash.views.live import LiveView
from tests.having import having
from tests.lives import said
from tests.scripted_run import BEGAN_S, PLAN, Trainer


def known_less(progress: Progress) -> Progress:
    steps = tuple(msgspec.structs.replace(step, samples=None, values={}) for step in progress.steps)
    return msgspec.structs.replace(progress, steps=steps, total_samples=None)


def items():
    run = Trainer()
    return [run.start(), *(known_less(run.step(50.0)) for _ in range(40)), run.wait(0.5)]


def test_the_screen_shows_the_rate_of_steps_and_no_other():
    view = LiveView(PLAN, BEGAN_S)
    for item in items():
        view.take(said(item))
    shown = view.snapshot(BEGAN_S + 2.5)
    assert shown == having(steps_per_s=pytest.approx(20.0), samples_per_s=None)
    assert shown.series.of("steps_per_s")[1] == pytest.approx(20.0)
    assert shown.series.of("samples_per_s") == shown.series.of("data_ms") == ()
    (row,) = shown.results
    assert row == having(steps_per_s=pytest.approx(20.0), samples_per_s=None, values={})


def test_a_recording_leaves_their_cells_empty():
    fold = Intervals(BEGAN_S)
    rows = [row for item in items() for row in fold.fold(item)]
    assert [row.steps for row in rows[:3]] == [10, 10, 10]
    assert {row.samples for row in rows[:3]} == {None}
    assert not any({"data_ms", "host_ms"} & row.values.keys() for row in rows[:3])
