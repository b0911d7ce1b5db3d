"""Numbers on screen change at most every two seconds; what happens is shown at once."""

import pytest
from msgspec.structs import replace as changed

from gpudash.diagnosis.headline import headline
from gpudash.protocol.answer import Answer
from gpudash.snapshot import Marker, Series, Snapshot
from gpudash.tui.run_state import Quiet
from tests.having import having
from tests.tui.comparisons import compared

FIRST = Snapshot(
    state="training",
    workload="encdec",
    elapsed_s=10.0,
    total_steps=100,
    steps_per_s=10.0,
    series=Series(at_s=(10.0,)),
)
LATER = changed(
    FIRST, elapsed_s=11.0, total_steps=111, steps_per_s=11.0, series=Series(at_s=(10.0, 10.5))
)


def shown(*snapshots):
    quiet = Quiet()
    return [quiet.of(one) for one in snapshots][-1]


def test_within_two_seconds_numbers_and_curves_stay_and_the_clock_goes_on():
    assert shown(FIRST, LATER) == having(
        steps_per_s=10.0, total_steps=100, series=FIRST.series, elapsed_s=11.0
    )


CHANGE = Marker(kind="change", at_s=10.5, label="a=on")
COMPARED = changed(FIRST, comparison=compared(3))
BLOCK = changed(LATER, comparison=compared(3), settings={"a": "on"}, markers=(CHANGE,))


@pytest.mark.parametrize(
    ("what", "snapshots", "steps_per_s"),
    [
        ("after two seconds they are new", [FIRST, LATER, changed(LATER, elapsed_s=12.0)], 11.0),
        *[(f"what happens is shown at once with the newest numbers: {event}",
           [FIRST, changed(LATER, **event)], 11.0)
          for event in [{"state": "paused"}, {"settings": {"a": "on"}}, {"pending": {"a": "on"}},
                        {"markers": (CHANGE,)}, {"workload": "other"}, {"quiet_s": 8.0}]],
        ("a block of an A/B is no event", [COMPARED, BLOCK], 10.0),
        ("a pause in it is one", [COMPARED, changed(BLOCK, state="paused")], 11.0),
        ("before the first step nothing is held", [changed(FIRST, total_steps=0), LATER], 11.0),
    ],
    ids=str,
)  # fmt: skip
def test_numbers_on_the_screen(what, snapshots, steps_per_s):
    assert shown(*snapshots).steps_per_s == steps_per_s, what


# ── the answer ──────────────────────────────────────────────────────────────────────────

FOUND = Answer(limit="data", title="input-bound", evidence=("it waits",), step_ms=10.0)
ANSWERED = changed(FIRST, settings={"a": "off"}, answer=FOUND)


def after(*snapshots):
    quiet = Quiet()
    for one in snapshots:
        quiet.of(one)
    return quiet


def test_an_answer_stays_while_another_one_is_found():
    lost = changed(ANSWERED, elapsed_s=20.0, answer=None, steps_since_break=7)
    quiet = after(ANSWERED, lost)
    assert quiet.answer == quiet.estimated == FOUND
    shown = headline(lost, quiet.answer)
    assert shown.title.startswith("measuring again … 7 of")
    assert shown.evidence == ("before that: input-bound", "it waits")
    assert shown.step_ms == 10.0
    assert shown.tries == ()  # what was proposed may have been tried just now


def test_estimates_stay_for_the_same_settings_only():
    assert after(ANSWERED, changed(ANSWERED, answer=None, settings={"a": "on"})) == having(
        answer=FOUND, estimated=None
    )


@pytest.mark.parametrize("other", [{"state": "starting"}, {"workload": "other"}])
def test_a_start_has_no_answer_from_before_it(other):
    assert after(ANSWERED, changed(ANSWERED, answer=None, **other)).answer is None
