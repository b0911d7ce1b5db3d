"""The line of an answer, from looks at a script's stack to what is said of them."""

from types import SimpleNamespace

import pytest

from gpudash.run.code_looks import LOOKS, CodeLooks
from tests.diagnosis.trainings import answered, changed, measured, profiled

IN_TORCH = '  File "/usr/lib/python3.12/site-packages/torch/nn/functional.py", line 5 in relu\n'
OFTEN, SELDOM = (f'  File "/home/me/net.py", line {line} in forward\n' for line in (7, 3))
STACKS = (IN_TORCH + OFTEN, OFTEN, SELDOM, IN_TORCH + OFTEN)


def looked_at(snapshot):
    """The snapshot with what twenty looks have met while its answer stood."""
    stacks, said = [*STACKS * (LOOKS // len(STACKS))], []

    def ask():
        stack = stacks.pop()
        return SimpleNamespace(is_whole=True, read=lambda: stack)

    looks = CodeLooks(ask, said.append)
    for second in range(10 * LOOKS):
        looks.look(float(second), snapshot)
    (code,) = said
    return changed(snapshot, code=code)


@pytest.mark.parametrize("profile", [None, profiled()], ids=["without a profile", "with one"])
def test_a_launch_bound_answer_names_the_line_from_which_most_is_launched(profile):
    launches = measured(host_ms=10.0, device_ms=10.0, gpu_util_pct=20.0)
    script = changed(launches, found="a script", can=("stacks",), worker_pid=4)
    answer = answered(looked_at(answered(script, profile=profile)), profile=profile).answer
    assert (answer.title, answer.line) == ("launch-bound", "me/net.py:7")
    assert "the script is at me/net.py:7 in 15 of 20 looks" in answer.evidence
