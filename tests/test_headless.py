from pathlib import Path

import pytest

from gpudash.headless import run_headless
from gpudash.records import Failed
from gpudash.snapshot import Snapshot


class Ended:
    """A session that has come to its end as soon as it is started."""

    recording_failure = None
    rows_recorded = 1

    def __init__(self, snapshot, failure=None):
        self.snapshot = snapshot
        self.failure = failure

    def start(self, listener):
        listener.on_snapshot(self.snapshot)

    def wait(self, timeout_s):
        return True

    def close(self):
        pass


def last_lines(capsys, skipped_samples, failure=None):
    snapshot = Snapshot(state="finished", total_steps=30, skipped_samples=skipped_samples)
    run_headless(Ended(snapshot, failure), Path("run.csv"))
    return capsys.readouterr().err.splitlines()[1:]


@pytest.mark.parametrize(
    ("samples", "clause"),
    [(1, "1 unreadable sample skipped"), (1234, "1,234 unreadable samples skipped")],
)
def test_samples_that_could_not_be_read_are_told_at_the_end(capsys, samples, clause):
    assert last_lines(capsys, samples) == [clause, "trained 30 steps; recorded to run.csv"]
    failed = Failed(at_s=1.0, kind="error", sentence="it broke")
    assert last_lines(capsys, samples, failed)[0] == clause


def test_nothing_is_said_where_every_sample_was_read(capsys):
    assert last_lines(capsys, 0) == ["trained 30 steps; recorded to run.csv"]
