"""Which phase each event begins, and what lies between calls: events in, phases out."""

import pytest

from gpudash.script.grammar import Phases


def phases_of(events):
    """Return the phases that are marked, in order, as the events after a mark show them.

    A call has the model's name behind it: `trains A`, and `returns` ends it.
    """
    phases, marked = Phases(), ["your_code"]
    for event in events.split(", "):
        symbol, _, subject = event.partition(" ") if event[-1].isupper() else (event, "", None)
        shown, phase = phases.feed(symbol, subject)
        if shown is not None:
            marked[-1:] = [shown] * (marked[-2] != shown)
        if phase is not None:
            marked.append(phase)
    return " ".join(marked[1:])


@pytest.mark.parametrize(
    ("events", "phases"),
    [
        (
            "waits, has to copy, trains A, returns, learns, has learned, updates, has updated",
            "idle copy forward backward your_code optimizer your_code",
        ),
        (
            "waits, has to copy, copies, has copied, copies, has copied, trains A, returns, learns",
            "idle your_code copy copy your_code forward backward",
        ),
        (
            "waits, has to copy, copies, has copied, updates",
            "idle your_code copy your_code optimizer",
        ),
        (
            "has a batch, freezes E, returns, trains A, returns, learns",
            "your_code frozen your_code forward backward",
        ),
        (
            "trains A, returns, freezes T, returns, learns",
            "forward your_code frozen forward backward",
        ),
        (
            "trains A, returns, freezes T, returns, trains A, returns, learns",
            "forward your_code frozen your_code forward backward",
        ),
        (
            "trains A, returns, freezes T, returns, trains B, returns, learns",
            "forward your_code frozen forward backward",
        ),
        ("trains A, returns, trains B, returns, learns", "forward backward"),
        ("trains A, returns, trains A, returns, learns", "forward your_code forward backward"),
        ("freezes E, returns, freezes F, returns, trains A", "frozen your_code forward"),
        ("trains A, freezes T, returns, returns, learns", "forward frozen forward backward"),
        ("acts A, returns, acts A, returns, trains A, returns, learns", "rollout forward backward"),
        ("updates, trains A, returns, learns, updates", "optimizer forward backward optimizer"),
        ("trains A, learns, has learned", "forward backward your_code"),
    ],
)
def test_events_begin_phases(events, phases):
    assert phases_of(events) == phases
