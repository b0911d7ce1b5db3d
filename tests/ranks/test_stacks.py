"""A stack shows where the script is, and the collective that it waits in."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpudash
from gpudash.ranks.stacks import collective, doing, frames, script_frame

TORCH = "/venv/lib/python3.11/site-packages/torch"


def text(*calls):
    """Return a stack as a process sends it, innermost call first."""
    lines = (f'  File "{file}", line {line} in {function}' for file, line, function in calls)
    return "\n".join(("Stack (most recent call first):", *lines, ""))


TRAIN = [("/home/u/train.py", 30, "train"), ("/home/u/train.py", 41, "<module>")]
BACKWARD = text(
    (f"{TORCH}/autograd/graph.py", 1113, "_engine_run_backward"),
    (f"{TORCH}/autograd/__init__.py", 395, "backward"),
    ("/opt/gpudash/script/patches.py", 88, "telling"),
    (f"{TORCH}/_tensor.py", 623, "backward"),
    *TRAIN,
)
OBJECTS = text(
    (f"{TORCH}/distributed/distributed_c10d.py", 2500, "_wait"),
    (f"{TORCH}/distributed/distributed_c10d.py", 3000, "all_gather"),
    (f"{TORCH}/distributed/c10d_logger.py", 81, "wrapper"),
    (f"{TORCH}/distributed/distributed_c10d.py", 3300, "gather_object"),
    (f"{TORCH}/distributed/c10d_logger.py", 81, "wrapper"),
    *TRAIN,
)


@pytest.mark.parametrize(
    ("stack", "waits_in", "does"),
    [
        (text(("/home/u/data.py", 41, "load"), *TRAIN), "", "is in load (data.py:41)"),
        (text(("/home/u/train.py", 7, "<module>")), "", "is at train.py:7"),
        (text(("<string>", 3, "getvalue"), *TRAIN), "", "is in train (train.py:30)"),
        (BACKWARD, "backward", "is in backward (train.py:30)"),
        (OBJECTS, "gather_object", "waits in gather_object (train.py:30)"),
        (
            text((f"{TORCH}/nn/parallel/distributed.py", 9, "_sync_module_states"), *TRAIN),
            "a broadcast of the parameters",
            "waits in a broadcast of the parameters (train.py:30)",
        ),
        (
            text((f"{TORCH}/utils/data/dataloader.py", 9, "_get_data"), *TRAIN),
            "",
            "waits for its loader's workers (train.py:30)",
        ),
        (
            text((f"{TORCH}/_inductor/codecache.py", 9, "load"), *TRAIN),
            "",
            "compiles (train.py:30)",
        ),
        (text(("/usr/lib/python3.11/threading.py", 5, "wait")), "", "is in wait (threading.py:5)"),
        ("", "", "is at no known place"),
    ],
)
def test_a_stack_shows_what_the_script_does(stack, waits_in, does):
    found = frames(stack)
    assert (collective(found), doing(found)) == (waits_in, does)


def test_code_of_the_script_inside_a_collective_does_not_wait():
    """The script's own code, called in the backward pass, computes."""
    stack = text(("/home/u/loss.py", 3, "backward"), *[("/x/torch/autograd/graph.py", 1, "_e")])
    assert collective(frames(stack + BACKWARD)) == ""


def test_names_that_look_like_a_stack_are_parsed_from_their_ends():
    (frame,) = frames('  File "/a/odd", line 3 in b.py", line 41 in load')
    assert (frame.file, frame.line, frame.function) == ('/a/odd", line 3 in b.py', "41", "load")
    (frame,) = frames("  File ???, line ??? in ???")
    assert str(frame) == "???:??? ???"


def test_no_more_calls_are_taken_than_a_process_sends():
    assert len(frames(text(*[("/home/u/train.py", 1, "again")] * 5000))) == 100


@given(st.data())
def test_a_text_that_was_changed_anywhere_is_read_without_harm(data):
    whole = BACKWARD + OBJECTS
    at = data.draw(st.integers(0, len(whole)))
    gone = data.draw(st.integers(0, 40))
    found = frames(whole[:at] + data.draw(st.text(max_size=20)) + whole[at + gone :])
    assert len(found) <= 100
    assert doing(found)
    assert "\n" not in doing(found)
    frame = script_frame(found)
    assert (frame is None) == (not found)
    if frame is not None:
        assert str(frame) in map(str, found)


def test_no_code_of_gpudashs_that_runs_in_a_training_is_taken_for_the_scripts():
    package = Path(gpudash.__file__).parent
    imports_torch = re.compile(r"^(?:import|from) torch\b", re.MULTILINE)
    ours = [path for path in package.rglob("*.py") if imports_torch.search(path.read_text())]
    assert len(ours) > 30
    for path in ours:
        if "integrations" not in path.parts:  # a callback of a framework's, named in the script
            script = script_frame(frames(text((str(path), 1, "ours"), *TRAIN)))
            assert script.where == "train.py:30", path
