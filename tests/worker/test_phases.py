from typing import get_args

from gpudash.worker.phases import PHASES
from workloads.workload import Phase


def test_every_phase_that_a_workload_marks_is_measured():
    assert {phase.name for phase in PHASES} == set(get_args(Phase)) - {"idle"}
