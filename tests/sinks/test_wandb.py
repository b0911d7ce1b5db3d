"""What an open run of W&B gets, and what is told where it gets nothing."""

import pytest

from gpudash.errors import RecordingError
from gpudash.protocol.session import Notice
from gpudash.sinks.sink import opener
from tests.lives import said
from tests.sinks.exporting import answer, origin, row

WHY = "W&B: the training has no run open; once it has, figures go there"
THERE = "W&B: the training has opened a run, and figures go there"


def opened():
    sink, handed = opener("wandb")("wandb", origin(), force=False), []
    sink.connect(handed.append)
    return sink, handed


def notice(text, *, sink="wandb", hinders=True):
    return said(Notice(text=text, sink=sink, hinders=hinders), source="training")


def test_a_row_is_handed_over_with_its_step_and_the_limit():
    sink, handed = opened()
    sink.take(answer())
    sink.take(row(3))
    sink.close(None)
    (figures,) = handed
    assert figures.step == 20
    assert figures.values["gpudash/GPU 0/power_w"] == 300.0
    assert figures.texts == {"gpudash/limit": "data"}


def test_what_was_in_the_way_to_the_last_is_told_at_the_end():
    sink, _ = opened()
    sink.take(notice(WHY))
    with pytest.raises(RecordingError, match="no run open"):
        sink.close(None)


def test_a_run_that_was_opened_later_and_another_sinks_notices_are_no_failure():
    sink, _ = opened()
    sink.take(notice(WHY))
    sink.take(notice(THERE, hinders=False))
    sink.take(notice(WHY, sink="other"))
    sink.close(None)
