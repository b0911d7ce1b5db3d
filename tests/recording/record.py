"""Record messages as a session does."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from gpudash.protocol.envelope import Envelope
from gpudash.protocol.training import Progress
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from gpudash.recording.rows import Rows
from gpudash.recording.step_columns import rounded
from gpudash.sinks.active import ActiveSinks
from gpudash.sinks.recording import RecordingWriter
from gpudash.views.time_breakdown import TimeBreakdown


def sent(bodies: Iterable[object], at_s: float, seq: int = 0) -> Iterator[Envelope]:
    """Yield messages of rank 0, or of the rank before each, at the moments that they tell of.

    Steps are rounded as a session rounds them.
    """
    for number, item in enumerate(bodies, seq):
        rank, body = item if isinstance(item, tuple) else (0, item)
        at_s = max(at_s, getattr(body, "until_s", getattr(body, "at_s", at_s)))
        body = rounded(body) if isinstance(body, Progress) else body
        yield Envelope(source="training", rank=rank, seq=number, sent_s=at_s, body=body)


def record(
    path: Path,
    messages: Iterable[Envelope],
    until_s: float,
    origin: Origin,
    *,
    log: bool = True,
    account: TimeBreakdown | None = None,
) -> Path:
    """Return the path of the log."""
    sinks = ActiveSinks(tell=lambda error: pytest.fail(str(error)))
    writer = RecordingWriter(path, origin, log=log)
    sinks.begin("recording", str(path), writer, origin, TimeBreakdown())
    for envelope in messages:
        sinks.take(envelope)
    sinks.close(until_s, account or TimeBreakdown())
    return writer.log_path


def rows_of(messages: Iterable[Envelope], until_s: float, origin: Origin) -> list[Interval]:
    rows = Rows(origin.began_s, origin.interval_s)
    return [*(row for one in messages for row in rows.take(one)), *rows.close(until_s)]
