"""Undo and redo of lever changes: what counts as one, and what the training refuses."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.errors import UsageError
from gpudash.protocol.session import Playback
from gpudash.tui.lever_control import MOST_EDITS, Edit, UndoStack
from tests.tui.fake_engine import result, settings, training
from tests.tui.test_run import ask, in_force, running

changed = msgspec.structs.replace


def changes_of(control):
    """Every change that the engine was asked for."""
    return [change for (change,) in control.engine.calls_of("change")]


def answered(control, requested=None, /, **values):
    """The worker has answered everything: these levers are active now."""
    control.take(in_force(requested, control.engine.requests, **values))


def labels(control):
    """What undo and redo would do."""
    return control.levers.label("undo"), control.levers.label("redo")


def test_undo_makes_the_opposite_change_and_redo_makes_it_again():
    control = running()
    ask(control, pipelined="on")
    answered(control, pipelined="on")
    assert labels(control) == ("pipelined=off", "")
    control.levers.go("undo")
    answered(control)
    assert labels(control) == ("", "pipelined=on")
    control.levers.go("redo")
    answered(control, pipelined="on")
    assert labels(control) == ("pipelined=off", "")
    assert changes_of(control) == [{"pipelined": one} for one in ("on", "off", "on")]


def test_each_change_is_undone_by_itself_the_newest_first():
    control = running()
    for value in ("16", "32"):
        ask(control, batch_size=value)
        answered(control, batch_size=value)
    ask(control, pipelined="on")
    answered(control, batch_size="32", pipelined="on")
    for left in ({"batch_size": "32"}, {"batch_size": "16"}, {}):
        control.levers.go("undo")
        answered(control, **left)
    assert changes_of(control)[3:] == [
        {"pipelined": "off"},
        {"batch_size": "16"},
        {"batch_size": "8"},
    ]


def test_keys_that_come_faster_than_answers_undo_one_change_each():
    control = running()
    ask(control, batch_size="16", pipelined="on")
    control.levers.go("undo")
    control.levers.go("undo")
    control.levers.go("redo")
    assert changes_of(control)[2:] == [
        {"pipelined": "off"},
        {"batch_size": "8"},
        {"batch_size": "16"},
    ]
    answered(control, batch_size="16")
    assert labels(control) == ("batch_size=8", "pipelined=on")


def test_where_nothing_was_changed_there_is_nothing_to_undo_or_redo():
    control = running()
    ask(control, pipelined="off")  # as it is
    with pytest.raises(UsageError, match="there is no lever change to undo"):
        control.levers.go("undo")
    with pytest.raises(UsageError, match="there is no lever change to redo"):
        control.levers.go("redo")
    assert changes_of(control) == []


def test_a_new_change_ends_what_could_be_redone():
    control = running()
    ask(control, pipelined="on")
    control.levers.go("undo")
    ask(control, batch_size="16")
    assert labels(control) == ("batch_size=8", "")


def test_a_refused_change_is_not_undone_but_the_one_before():
    control = running()
    ask(control, batch_size="16")
    answered(control, batch_size="16")
    ask(control, cuda_graph="on")
    assert control.levers.label("undo") == "cuda_graph=off"  # it may be accepted yet
    answered(control, batch_size="16")
    assert labels(control) == ("batch_size=8", "")


def test_a_change_given_up_later_for_want_of_memory_is_dropped_too():
    control = running()
    ask(control, batch_size="4096")
    answered(control, batch_size="4096")
    assert control.levers.label("undo") == "batch_size=8"
    answered(control)
    assert control.levers.label("undo") == ""


def test_an_undo_that_is_refused_leaves_the_change_undoable():
    control = running()
    ask(control, batch_size="16")
    answered(control, batch_size="16")
    control.levers.go("undo")
    answered(control, batch_size="16")
    assert labels(control) == ("batch_size=8", "")


def test_a_redo_that_is_refused_cannot_be_redone_again():
    control = running()
    ask(control, batch_size="16")
    control.levers.go("undo")
    answered(control)
    control.levers.go("redo")
    answered(control)
    assert labels(control) == ("", "")


def test_a_refused_value_between_two_others_is_found_out_when_undo_asks_for_it():
    control = running()
    ask(control, batch_size="4096")
    ask(control, batch_size="2048")
    answered(control, batch_size="2048")  # 4096 was refused before
    control.levers.go("undo")
    answered(control, batch_size="2048")  # and is again
    assert control.levers.label("undo") == "batch_size=8"


def test_a_refused_value_and_the_way_back_from_it_are_no_change():
    control = running()
    ask(control, batch_size="4096")
    ask(control, batch_size="8")
    answered(control)
    control.levers.go("undo")
    answered(control)  # 4096 is refused
    assert labels(control) == ("", "")


def test_an_unanswered_change_is_not_taken_for_refused():
    control = running()
    ask(control, batch_size="16")
    control.take(in_force({}, 0))
    pending = changed(in_force({}, 1), pending={"batch_size": "16"}, state="switching")
    control.take(pending)
    assert control.levers.label("undo") == "batch_size=8"
    answered(control, batch_size="16")
    assert control.levers.label("undo") == "batch_size=8"


def test_a_value_that_stands_for_another_one_is_in_force_as_that():
    control = running(model_scale="small")
    ask(control, model_scale="auto")
    answered(control, {"model_scale": "auto"}, model_scale="full")
    assert control.levers.label("undo") == "model_scale=small"


def test_what_an_ab_switches_is_no_change_of_the_users():
    control = running()
    control.ab.compare("pipelined", "on")
    answered(control)
    assert control.levers.label("undo") == ""


def test_changes_before_a_restart_can_be_undone_after_it():
    control = running()
    ask(control, batch_size="16")
    control.restart()
    control.take(in_force({}, 1))  # the last word of the worker before
    control.take(changed(in_force({}, 2), state="starting", worker_pid=None, settings={}))
    control.take(changed(in_force({}, 2, batch_size="16"), worker_pid=4243))
    assert control.levers.label("undo") == "batch_size=8"
    control.levers.go("undo")
    assert changes_of(control)[-1] == {"batch_size": "8"}


def test_another_workload_begins_without_a_past():
    control = running()
    ask(control, batch_size="16")
    control.start_workload("augment")
    assert control.levers.label("undo") == ""


def test_changes_to_the_next_start_are_undone_without_a_worker():
    control = running()
    control.take(changed(training(), settings=settings(), state="failed"))
    ask(control, batch_size="16")
    assert control.levers.next_start == {"batch_size": "16"}
    control.levers.go("undo")
    assert control.levers.next_start == {}
    control.levers.go("redo")
    assert control.levers.next_start == {"batch_size": "16"}
    assert changes_of(control) == []


def test_a_recording_has_no_change_to_undo():
    control = running()
    control.take(changed(training(), can=(), playback=Playback(name="run.csv")))
    for way in ("undo", "redo"):
        with pytest.raises(UsageError, match="a recording is shown"):
            control.levers.go(way)


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
def test_a_row_that_cannot_be_used_is_refused_with_the_reason(wrong, why):
    control = running()
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
