"""Where a script is at random moments: the line of its own code that costs most."""

from types import SimpleNamespace

import pytest

from gpudash.protocol.answer import Answer, Without
from gpudash.protocol.inspections import CodeLine
from gpudash.ranks.stacks import frames, own_frame
from gpudash.run.code_looks import LOOKS, CodeLooks
from gpudash.snapshot import Snapshot

TORCH = "/usr/lib/python3.12/site-packages/torch"
SCRIPT = '  File "/home/me/train.py", line {} in {}\n'
IN_NUMPY = '  File "/usr/lib/python3.12/site-packages/numpy/linalg.py", line 9 in svd\n'


def answered(code_ms=5.0, part="your code", limit="own_code", **changes):
    parts = (Without(part, 5.0, 5.0, code_ms),)
    answer = Answer(limit=limit, title="", step_ms=10.0, parts=parts)
    able = {
        "state": "training",
        "found": "a script",
        "can": ("stacks",),
        "worker_pid": 4,
        "answer": answer,
    }
    return Snapshot(**{**able, **changes})


def looked(*snapshots, places, seconds=60):
    """Look for so long at each, at these places in turn; return how often, and what is said."""
    asked, said = [], []

    def ask():
        asked.append(places[len(asked) % len(places)])
        return asked[-1] and SimpleNamespace(is_whole=True, read=lambda: asked[-1])

    looks = CodeLooks(ask, said.append)
    for tick in range(len(snapshots) * seconds * 20):
        looks.look(tick / 20, snapshots[tick // (seconds * 20)])
    return len(asked), said


@pytest.mark.parametrize("part", ["your code", "blocked", "launch", "compiling", "rollout"])
def test_the_line_that_is_met_most_often_comes_first(part):
    rare, often = SCRIPT.format(3, "<module>"), SCRIPT.format(7, "augment")
    asked, (said,) = looked(answered(part=part), places=(often, often, rare, often))
    assert asked == LOOKS
    assert said.first == CodeLine("/home/me/train.py", 7, "augment", 15)
    assert said.lines[1].line == 3


def test_a_line_that_is_met_twice_in_twenty_looks_is_not_named():
    elsewhere = f'  File "{TORCH}/optim/adam.py", line 5 in step\n' + SCRIPT.format(9, "main")
    _, (said,) = looked(answered(), places=([*[elsewhere] * 9, SCRIPT.format(7, "augment")]))
    assert said.lines == (CodeLine("/home/me/train.py", 7, "augment", 2),)
    assert said.first is None


def test_a_phase_of_torch_is_not_the_scripts_own_code():
    inner = SCRIPT.format(31, "forward")
    phases = "nn/modules/module.py", "_tensor.py", "optim/adam.py", "utils/data/dataloader.py"
    for phase in phases:
        within = f'  File "{TORCH}/{phase}", line 5 in call\n' + SCRIPT.format(9, "main")
        assert own_frame(frames(within)) is None
    assert own_frame(frames(inner)).line == "31"
    assert own_frame(frames(IN_NUMPY + inner)).line == "31"  # called by the script's line


def test_work_that_torch_does_for_a_line_is_that_lines_work_but_not_in_a_backward_pass():
    """Those of an optimizer are of its call; a backward pass works for the lines before it."""
    optimizer = f'  File "{TORCH}/optim/adam.py", line 5 in step\n' + SCRIPT.format(41, "main")
    backward = f'  File "{TORCH}/_tensor.py", line 5 in backward\n' + SCRIPT.format(40, "main")
    places = (optimizer, backward, optimizer, SCRIPT.format(18, "forward"))
    _, (said,) = looked(answered(part="launch"), places=places)
    assert [(one.line, one.count) for one in said.work] == [(41, 10), (18, 5)]
    assert [(one.line, one.count) for one in said.lines] == [(18, 5)]


def test_lines_of_one_function_are_met_together():
    places = [SCRIPT.format(line, "cell") for line in range(1, 21)]
    _, (said,) = looked(answered(part="launch"), places=places)
    assert said.most_frequent(said.work).function == "cell"


def test_evaluations_are_looked_at_where_they_limit_the_training():
    within, beside = (answered(limit="asides", doing=doing) for doing in (None, "evaluation"))
    assert looked(within, places=[SCRIPT.format(7, "f")]) == (0, [])
    _, (said,) = looked(beside, places=[SCRIPT.format(7, "evaluate")])
    assert (said.beside, said.work[0].function) == (True, "evaluate")


NOT_ASKED = [{"code_ms": 0.5}, {"answer": None}, {"can": ()}, {"state": "paused"}]


@pytest.mark.parametrize("changes", NOT_ASKED)
def test_nobody_is_asked_where_own_code_takes_less_than_a_tenth_or_without_an_answer(changes):
    assert looked(answered(**changes), places=[SCRIPT.format(7, "f")]) == (0, [])


def test_other_settings_are_looked_at_anew():
    changed = answered(settings={"num_workers": "4"})
    _, said = looked(answered(settings={}), changed, places=[SCRIPT.format(7, "f")])
    assert len(said) == 2


def test_a_process_that_does_not_listen_ends_the_looks_too():
    _, (none,) = looked(answered(), places=[None])
    assert (none.lines, none.first) == ((), None)
