"""All that is said of each recorded training, and of some of encdec: a golden file each.

`GPUDASH_WRITE_SCREENS=1 pytest tests/diagnosis/test_golden_answers.py` writes them anew. Read what
has changed in them then: each is the whole answer without a profile, and with one.
"""

from itertools import takewhile
from pathlib import Path

import pytest

from gpudash.diagnosis.answer import find
from gpudash.protocol.readings import Job, OtherJobs
from tests.diagnosis import trainings
from tests.diagnosis.recorded import NAMES, recorded
from tests.golden import lined, says

ANSWERS = Path(__file__).with_name("golden_answers")
JOBS = OtherJobs(
    at_s=0.0,
    used_cores=5.5,
    cores=8,
    busiest=(Job(pid=3, name="render", cores=3.25), Job(pid=4, name="index", cores=1.5)),
)
OURS = {
    "encdec_gpu": trainings.gpu_step,
    "encdec_two_streams": trainings.two_streams,
    "encdec_cpu": trainings.cpu_step,
    "encdec_launching": trainings.launching,
    "encdec_starved": lambda: trainings.starved(40.0),
    "encdec_behind": trainings.behind,
    "encdec_evaluating": lambda: trainings.evaluating(0.6),
    "encdec_evaluating_seldom": lambda: trainings.evaluating(0.35, 3.0),
    "encdec_active": lambda: trainings.read(trainings.gpu_step(), sm_active_pct=80.0),
    "encdec_beside_jobs": lambda: trainings.changed(
        trainings.measured(device=trainings.CPU, core_wait_pct=33.0, data_ms=2.0),
        other_jobs=JOBS,
        host=trainings.crowding(33.0, cpu_pct=130.0),
    ),
    "encdec_busy_units": lambda: trainings.read(
        trainings.measured(forward_ms=2.0, backward_ms=3.0, optimizer_ms=1.0),
        sm_active_pct=80.0,
        tensor_active_pct=30.0,
        dram_active_pct=50.0,
        sm_clock_mhz=1500.0,
        top_clock_mhz=1980.0,
    ),
}


def told(answer):
    """Yield each figure of an answer to four digits, and each text."""
    step = f"a step {answer.step_ms:.4g} ms" if answer.step_ms else "no step"
    yield f"{answer.title} ({answer.limit}, {answer.owner or '–'}, {answer.line or '–'}), {step}"
    why = takewhile(lambda line: "traced" not in line, answer.why)  # a profile's text has its tests
    yield from (f"  {clause}" for clause in (*answer.evidence, *why, answer.caution))
    for one in answer.parts:
        took = "–" if one.took_ms is None else f"{one.took_ms:.4g}"
        yield f"  without {one.part}: {one.low_ms:.4g} to {one.high_ms:.4g} ms; took {took}"
    yield f"  counts: {', '.join(f'{name} {n:.4g}' for name, n in sorted(answer.counts.items()))}"
    for one in answer.tries:
        yield f"  {one.move}: {one.why}; takes {one.takes_s} s"
        if (gain := one.gain) is not None:
            low = "–" if gain.low_pct is None else f"{gain.low_pct:.4g}"
            yield f"    {low} to {gain.high_pct:.4g} %; {gain.source}; {gain.how}"
    yield f"  minor: {', '.join(answer.minor)}"
    for lane in answer.lanes:
        parts = ", ".join(f"{part.label} {part.ms:.4g}" for part in lane.parts)
        yield f"  {lane.name}: {parts}, {lane.rest} {lane.rest_ms:.4g}"


@pytest.mark.parametrize("name", [*NAMES, *OURS])
def test_what_is_said_of_a_training_is_its_golden_file(name):
    if name in OURS:
        snapshot, cores, profile = OURS[name](), 8, trainings.profiled()
    else:
        known, snapshot = recorded(name)
        cores, profile = known.cores, known.summary
    alone, deepened = find(snapshot, cores), find(snapshot, cores, profile)
    seen = lined(("== alone", *told(alone), "== profiled", *told(deepened)))
    assert says(ANSWERS / f"{name}.txt", seen)
