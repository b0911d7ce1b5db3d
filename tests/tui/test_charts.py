"""What the charts show: pure functions of a snapshot."""

import msgspec

from gpudash.protocol import Phase
from gpudash.snapshot import Snapshot
from gpudash.tui.charts import step_time
from tests.tui.fake_engine import training, with_series


def phases(snapshot):
    return [line.label for line in step_time(snapshot).lines]


def named(**labels):
    return tuple(Phase(name=name, label=label, lane="train") for name, label in labels.items())


def test_before_the_training_has_told_its_phases_the_usual_ones_are_named():
    usual = ["data", "copy", "prepare", "forward", "backward", "optimizer"]
    assert phases(Snapshot()) == usual


def test_a_phase_is_named_in_the_trainings_own_word():
    told = named(copy="copy", prepare="encode", forward="forward", graph="graph")
    snapshot = msgspec.structs.replace(training(), phases=told)
    assert phases(snapshot) == ["data", "copy", "encode", "forward"]  # no graph was measured
    copy, encode, forward = step_time(snapshot).lines[1:]
    assert encode.values == snapshot.series.of("prepare_ms")
    assert [line.short for line in (copy, encode, forward)] == ["", "", "fwd"]


def test_a_phase_that_gpudash_does_not_know_has_a_line_too():
    snapshot = with_series(training(), all_reduce_ms=(0.5,) * 60)
    told = named(forward="forward", all_reduce="all-reduce")
    line = step_time(msgspec.structs.replace(snapshot, phases=told)).lines[-1]
    assert (line.label, line.value, line.values) == ("all-reduce", "0.50", (0.5,) * 60)
