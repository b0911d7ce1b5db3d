"""Reading a recording takes the same memory however long it is."""

import tracemalloc
from collections import deque
from itertools import product
from pathlib import Path

import pytest

from gpudash.metrics import METRICS
from gpudash.protocol.training import Printed, Progress
from gpudash.recording import log, provenance
from gpudash.recording.csv_reader import open_recording
from gpudash.recording.log import Origin
from gpudash.run import replay as replaying
from gpudash.sinks import export as exporting
from gpudash.views import live, settings_history, timeseries
from tests.lives import changed
from tests.recording.record import record, sent
from tests.recording.test_csv_format import BEGAN_UTC
from tests.run.test_replay import Replayed
from tests.scripted_run import BEGAN_S, gpu, started, step

SHORT, LONG = 48, 144
"""Rows, of 16 minutes and 48: more than a chart keeps as it came."""
ROW_S = 20.0
SLACK = 3 << 16
"""Bytes: 96 rows more, kept as objects or with what they print, take more."""
STEPS, STEP_S = 10, 2.0
OF_GPU = {
    name: 1.5 for name, one in METRICS.items() if (one.kind, one.over_time) == ("gpu", "mean")
}


def make(path, rows):
    """Record a training that changes with each row and prints 25 KB in it: long, it is 4 MB."""
    origin = Origin(began_s=BEGAN_S, began_utc=BEGAN_UTC, interval_s=ROW_S, command=())
    record(path, told(rows), BEGAN_S + rows * ROW_S, origin)


def told(rows):
    state = started(BEGAN_S, {"batch_size": "8"})
    printed = Printed(lines=("x" * 800,) * 32)
    for row in range(rows):
        began_s = BEGAN_S + row * ROW_S
        if row:
            settings = {"batch_size": str(8 + row % 2)}
            about = {"after_step": row * STEPS, "changes": settings, "settings": settings}
            state = changed(began_s, segment=row, **about).after(state)
        end_s, number = began_s + ROW_S, (row + 1) * STEPS
        steps = [
            step(number - left, end_s - left * STEP_S, 1e3 * STEP_S, row)
            for left in reversed(range(STEPS))
        ]
        trained = {"total_steps": number, "total_samples": 8 * number}
        report = Progress(until_s=end_s, steps=tuple(steps), **trained)
        bodies = [printed, state, report, gpu(end_s, **OF_GPU | {"power_w": float(row)})]
        yield from sent(bodies, began_s, seq=len(bodies) * row)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory) -> dict[tuple[str, int], Path]:
    """Return a log and a CSV alone of both lengths."""
    folder, found = tmp_path_factory.mktemp("recordings"), {}
    for rows in (SHORT, LONG):
        make(folder / f"{rows}.csv", rows)
        alone = folder / f"{rows}-alone.csv"
        (folder / f"{rows}.csv").rename(alone)
        found |= {("log", rows): folder / f"{rows}.jsonl", ("csv", rows): alone}
    return found


def read(path: Path, _folder: Path) -> None:
    for _ in open_recording(path):
        pass


def replay(path: Path, _folder: Path) -> None:
    again = Replayed(path)
    again.session.screen.log = deque(maxlen=0)  # a screen keeps the newest lines alone
    assert again.at(again.player.length_s).total_steps % STEPS == 0


def to(suffix):
    return lambda path, folder: exporting.export(path, folder / f"again{suffix}", force=True)


USES = {"read": read, "replay": replay} | {suffix: to(suffix) for suffix in exporting.FORMATS}


def peak(use, path, folder) -> int:
    tracemalloc.start()
    try:
        use(path, folder)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("use", "kind"), [*product(USES, ["log"]), ("read", "csv"), (".jsonl", "csv")]
)
def test_a_recording_three_times_as_long_takes_no_more_memory(
    recordings, tmp_path, monkeypatch, kind, use
):
    """Buffers are made small, so that the short recording fills them."""
    monkeypatch.setattr(log, "LONGEST_LINE", {"log": 1 << 15, "csv": 1 << 12}[kind])
    monkeypatch.setattr(replaying, "AT_ONCE", SHORT)
    monkeypatch.setattr(live, "MOST_MARKERS", SHORT // 2)
    monkeypatch.setattr(settings_history, "MOST_ROWS", SHORT // 2)
    for name, ticks in {"CAPACITY": 48, "KEPT": 36, "MERGED": 120}.items():
        monkeypatch.setattr(timeseries, name, ticks)
    monkeypatch.setattr(exporting, "BATCH", SHORT // 2)
    monkeypatch.setattr(provenance, "MOST_LISTED", 10)
    once, more = recordings[kind, SHORT], recordings[kind, LONG]
    USES[use](once, tmp_path)  # what is imported and kept for good
    assert peak(USES[use], more, tmp_path) < peak(USES[use], once, tmp_path) + SLACK
