"""Pages made from the scripted snapshots of the dashboard's tests."""

from datetime import UTC, datetime

import msgspec

from gpudash.recording.log import Origin
from gpudash.recording.provenance import Failure, Metadata
from gpudash.report.page import page
from gpudash.run.replayed import Replayed
from gpudash.views.time_breakdown import TimeBreakdown

COMMAND = ("gpudash", "report", "run.csv", "-o", "run.html")
ORIGIN = Origin(
    began_s=0.0,
    began_utc=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    interval_s=0.5,
    command=("gpudash", "encdec", "--record", "run.csv"),
    platform="Linux-6.1",
    versions={"gpudash": "0.1.0", "driver": "570.1"},
)
ACCOUNT = TimeBreakdown(wall_s=60.0, phases_s=50.0, paused_s=4.0, unattributed_s=6.0)
METADATA = Metadata(
    complete=True,
    started_utc="2026-01-02T03:04:05.000Z",
    interval_s=0.5,
    command=ORIGIN.command,
    platform=ORIGIN.platform,
    versions=ORIGIN.versions,
)


def run_of(snapshot, **changes):
    known = Replayed(
        name="run.csv",
        origin=ORIGIN,
        metadata=METADATA,
        snapshot=snapshot,
        process=None,
        steps_per_s=143.2,
        account=ACCOUNT,
        limits=(),
        failures=(),
        notices=(),
        refused=0,
    )
    return msgspec.structs.replace(known, **changes)


def page_of(snapshot, *, price=None, **changes):
    return page(run_of(snapshot, **changes), COMMAND, price)


FAILED = Failure(at_s=65.0, kind="out_of_memory", sentence="out of memory at batch_size=64")
