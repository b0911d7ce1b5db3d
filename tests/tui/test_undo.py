"""Undo and redo of lever changes: what counts as one, and what the training refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from gpudash.errors import UsageError
from gpudash.tui.lever_control import MOST_EDITS, Edit, UndoStack
from tests.tui.fake_engine import result, settings, training
from tests.tui.test_run import ask, in_force, running


@pytest.fixture
def control():
    return running()


def changes_of(control):
    """Every change that the engine was asked for."""
    return [change for (change,) in control.engine.calls_of("change")]


def labels(control):
    """What undo and redo would do."""
    return control.levers.label("undo"), control.levers.label("redo")


# ── what happens, one after another ─────────────────────────────────────────────────────


def asks(**values):
    return lambda control: ask(control, **values)


def answers(requested=None, /, **values):
    """The worker has answered everything: these levers are active now."""
    return lambda control: control.take(in_force(requested, control.engine.requests, **values))


def takes(*snapshots):
    return lambda control: [control.take(one) for one in snapshots]


def undo(control):
    control.levers.go("undo")


def redo(control):
    control.levers.go("redo")


ON, OFF = {"pipelined": "on"}, {"pipelined": "off"}
SIXTEEN, THIRTY_TWO, EIGHT = ({"batch_size": size} for size in ("16", "32", "8"))
HUGE = {"batch_size": "4096"}
DEAD = changed(training(), settings=settings(), state="failed")
SWITCHING = changed(in_force({}, 1), pending=SIXTEEN, state="switching")
RESTARTED = changed(in_force({}, 2, **SIXTEEN), worker_pid=4243)
STARTING = changed(in_force({}, 2), state="starting", worker_pid=None, settings={})


@pytest.mark.parametrize(
    ("what", "steps", "after", "then"),
    [
        ("a change can be undone", [asks(**ON), answers(**ON)], ("pipelined=off", ""), [ON]),
        ("undo makes the opposite change", [asks(**ON), answers(**ON), undo, answers()],
         ("", "pipelined=on"), [ON, OFF]),
        ("redo makes it again",
         [asks(**ON), answers(**ON), undo, answers(), redo, answers(**ON)],
         ("pipelined=off", ""), [ON, OFF, ON]),
        ("each change is undone by itself, the newest first",
         [asks(**SIXTEEN), answers(**SIXTEEN), asks(**THIRTY_TWO), answers(**THIRTY_TWO),
          asks(**ON), answers(**ON, **THIRTY_TWO), undo, answers(**THIRTY_TWO), undo,
          answers(**SIXTEEN), undo, answers()],
         ("", "batch_size=16"), [SIXTEEN, THIRTY_TWO, ON, OFF, SIXTEEN, EIGHT]),
        ("keys that come faster than answers undo one change each",
         [asks(**SIXTEEN, **ON), undo, undo, redo, answers(**SIXTEEN)],
         ("batch_size=8", "pipelined=on"), [SIXTEEN, ON, OFF, EIGHT, SIXTEEN]),
        ("what is as it was is no change", [asks(**OFF)], ("", ""), []),
        ("a new change ends what could be redone", [asks(**ON), undo, asks(**SIXTEEN)],
         ("batch_size=8", ""), [ON, OFF, SIXTEEN]),
        ("a change that may be accepted yet can be undone",
         [asks(**SIXTEEN), answers(**SIXTEEN), asks(cuda_graph="on")],
         ("cuda_graph=off", ""), None),
        ("a refused one is not undone but the one before",
         [asks(**SIXTEEN), answers(**SIXTEEN), asks(cuda_graph="on"), answers(**SIXTEEN)],
         ("batch_size=8", ""), None),
        ("nor one given up later for want of memory",
         [asks(**HUGE), answers(**HUGE), answers()], ("", ""), None),
        ("an undo that is refused leaves the change undoable",
         [asks(**SIXTEEN), answers(**SIXTEEN), undo, answers(**SIXTEEN)],
         ("batch_size=8", ""), None),
        ("a redo that is refused cannot be redone again",
         [asks(**SIXTEEN), undo, answers(), redo, answers()], ("", ""), None),
        ("a refused value between two others is found out when undo asks for it",
         [asks(**HUGE), asks(**THIRTY_TWO), answers(**THIRTY_TWO), undo, answers(**THIRTY_TWO)],
         ("batch_size=8", ""), None),
        ("a refused value and the way back from it are no change",
         [asks(**HUGE), asks(**EIGHT), answers(), undo, answers()], ("", ""), None),
        ("an unanswered change is not taken for refused",
         [asks(**SIXTEEN), takes(in_force({}, 0), SWITCHING)], ("batch_size=8", ""), None),
        ("nor once it is in force",
         [asks(**SIXTEEN), takes(in_force({}, 0), SWITCHING), answers(**SIXTEEN)],
         ("batch_size=8", ""), None),
        ("a value that stands for another one is in force as that",
         [answers(model_scale="small"), asks(model_scale="auto"),
          answers({"model_scale": "auto"}, model_scale="full")], ("model_scale=small", ""), None),
        ("what an A/B switches is no change of the user's",
         [lambda control: control.ab.compare("pipelined", "on"), answers()], ("", ""), None),
        ("changes before a restart can be undone after it",
         [asks(**SIXTEEN), lambda control: control.restart(),
          takes(in_force({}, 1), STARTING, RESTARTED)], ("batch_size=8", ""), None),
        ("and are", [asks(**SIXTEEN), lambda control: control.restart(),
                     takes(in_force({}, 1), STARTING, RESTARTED), undo],
         ("", "batch_size=16"), [SIXTEEN, EIGHT]),
        ("another workload begins without a past",
         [asks(**SIXTEEN), lambda control: control.start_workload("augment")], ("", ""), None),
        ("changes to the next start are undone without a worker",
         [takes(DEAD), asks(**SIXTEEN), undo], ("", "batch_size=16"), []),
    ],
)  # fmt: skip
def test_undo_and_redo(what, steps, after, then, control):
    for step in steps:
        step(control)
    assert labels(control) == after, what
    assert then is None or changes_of(control) == then, what


def test_changes_to_the_next_start_are_those_that_are_not_undone(control):
    control.take(DEAD)
    ask(control, **SIXTEEN)
    for way, settings_then in ((None, SIXTEEN), (undo, {}), (redo, SIXTEEN)):
        if way:
            way(control)
        assert control.levers.next_start == settings_then


# ── a row's settings ────────────────────────────────────────────────────────────────────


def row(number=2, /, **values):
    return result(number, "a row", 9.0, settings=settings(**values))


def test_a_row_is_put_in_force_as_one_change_of_what_differs():
    control = running(precision="bf16")
    control.levers.use_row(row(pipelined="on", batch_size="32"))
    assert changes_of(control) == [{"pipelined": "on", "batch_size": "32", "precision": "tf32"}]
    assert control.levers.label("undo") == "3 levers"
    control.levers.go("undo")
    assert changes_of(control)[1] == {"pipelined": "off", "batch_size": "8", "precision": "bf16"}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (row(3), "setting 3 is set already"),
        (changed(row(3), workload="augment"), "setting 3 is of augment, not encdec"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused_with_the_reason(wrong, why, control):
    with pytest.raises(UsageError, match=why):
        control.levers.use_row(wrong)
    assert changes_of(control) == []


# ── the stack alone ─────────────────────────────────────────────────────────────────────


def test_the_oldest_of_too_many_edits_are_forgotten():
    stack = UndoStack()
    for number in range(MOST_EDITS + 5):
        stack.made(Edit({"seed": str(number)}, {"seed": str(number + 1)}))
    count = 0
    while stack.next("undo") is not None:
        stack.went("undo")
        count += 1
    assert count == MOST_EDITS
    assert stack.next("redo").label == "seed=6"


VALUES = st.sampled_from(["1", "2", "3", "4"])
STEPS = st.lists(st.tuples(st.sampled_from(["set", "undo", "redo"]), VALUES, st.booleans()))


@given(STEPS)
def test_whatever_is_refused_undo_and_redo_lead_to_values_that_were_in_force(steps):
    stack, active, been = UndoStack(), "0", {"0"}
    for verb, value, accepted in steps:
        edit = {
            "set": Edit({"n": active}, {"n": value}) if value != active else None,
            "undo": stack.next("undo"),
            "redo": stack.next("redo"),
        }[verb]
        if edit is None:
            continue
        if verb != "set":
            assert edit.before == {"n": active}
            assert edit.after["n"] in been
        if verb == "set":
            stack.made(edit)
        else:
            stack.went(verb)
        if accepted:
            active = edit.after["n"]
            been.add(active)
        stack.settle(lambda settings, active=active: settings == {"n": active})
