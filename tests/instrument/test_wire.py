"""What a training process sends of its steps is what a session reads, without msgspec."""

import ast
import math
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import msgspec

from gpudash.instrument import wire
from gpudash.instrument.wire import FinishedStep, StepReport, encoded
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.training import Progress, Step

STEP = FinishedStep(
    step=7,
    segment=2,
    finished_s=12.5,
    step_ms=4.25,
    values={"data_ms": 0.5, "host_ms": 3.0, "own_ms": 0.125},
    count=2,
    samples=16,
    tokens=640,
    parts_ms={"backward": (1.5, 0.5)},
)
REPORT = StepReport(
    until_s=13.0,
    steps=(STEP,),
    total_steps=7,
    total_samples=56,
    loss=0.75,
    loss_step=6,
    transform_ms={"decode": 2.0},
    skipped_samples=3,
    instruments_ms=0.25,
    values={"mem_peak_mib": 20.0},
)


def read(report: StepReport) -> Envelope:
    return msgspec.json.decode(encoded(report, 3, 9, 13.5), type=Envelope)


def test_a_report_is_read_as_it_was_sent() -> None:
    envelope = read(REPORT)
    assert (envelope.source, envelope.rank, envelope.seq) == ("training", 3, 9)
    assert envelope.sent_s == 13.5
    known = {one.name: getattr(REPORT, one.name) for one in fields(REPORT)}
    assert envelope.body == Progress(**known | {"steps": (Step(**STEP._asdict()),)})


def test_a_step_and_a_report_without_more_have_the_sessions_defaults() -> None:
    step = FinishedStep(step=1, segment=0, finished_s=1.0, step_ms=1.0, values={})
    report = StepReport(until_s=1.0, steps=(step,), total_steps=1, total_samples=None)
    same = Step(step=1, segment=0, finished_s=1.0, step_ms=1.0)
    assert read(report).body == Progress(
        until_s=1.0, steps=(same,), total_steps=1, total_samples=None
    )


def test_the_sessions_records_have_the_same_fields_in_the_same_order() -> None:
    assert Step.__struct_fields__[: len(STEP._fields)] == STEP._fields
    assert {one.name for one in fields(StepReport)} == {*Progress.__struct_fields__}


def test_a_loss_and_values_that_are_no_numbers_are_not_sent() -> None:
    step = STEP._replace(values={"data_ms": math.nan, "host_ms": 1.0})
    odd = StepReport(
        until_s=1.0, steps=(step,), total_steps=7, total_samples=None, loss=math.nan, loss_step=7
    )
    body = read(odd).body
    assert (body.loss, body.loss_step, body.total_samples) == (None, 7, None)
    assert body.steps[0].values == {"host_ms": 1.0}


def test_it_is_the_syntax_of_python_3_10_and_needs_nothing_that_is_installed() -> None:
    ast.parse(Path(wire.__file__).read_text(encoding="utf-8"), feature_version=(3, 10))
    alone = f"import runpy, sys; runpy.run_path({wire.__file__!r}); print('msgspec' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", alone], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "False"
