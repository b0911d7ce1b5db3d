"""A new metric needs one line in the table and one where it is measured."""

import csv
from datetime import UTC, datetime

import msgspec

from docs.make_reference import metrics
from gpudash.metrics import METRICS, Metric
from gpudash.present.axes import TimeView
from gpudash.present.readings import ShownReading, readings
from gpudash.recording.csv_format import columns
from gpudash.recording.intervals import Intervals
from gpudash.recording.log import Origin
from gpudash.sinks.recording import RecordingWriter
from gpudash.telemetry.gpu import FAST, open_gpu
from gpudash.tui.widgets.readings import device_lines
from gpudash.views.live import LiveView
from tests.lives import said
from tests.scripted_run import PLAN
from tests.telemetry.shim import FIRST


def test_a_new_metric_is_in_the_csv_the_snapshot_the_panels_and_the_docs(
    driver, monkeypatch, tmp_path
):
    before = [*columns()]
    fan = Metric("gpu", "%", "Of the fan's top speed.", csv=2, label="fan", spark=True)
    monkeypatch.setitem(METRICS, "fan_pct", fan)
    monkeypatch.setitem(FAST, "fan", lambda _gpu: {"fan_pct": 37.5})

    gpu = open_gpu(FIRST)
    reading = gpu.fast()
    gpu.close()

    path = tmp_path / "run.csv"
    origin = Origin(
        began_s=reading.at_s - 1, began_utc=datetime.now(UTC), interval_s=2.0, command=()
    )
    recording = RecordingWriter(path, origin)
    intervals = Intervals(reading.at_s - 1, interval_s=2.0)
    intervals.fold(reading)
    for row in intervals.close(reading.at_s + 1):
        recording.take(row)
    recording.close()
    with path.open(encoding="utf-8") as file:
        rows = csv.DictReader(file)
        assert rows.fieldnames == [*before, "fan_pct"]
        assert [row["fan_pct"] for row in rows] == ["37.50"]

    live = LiveView(PLAN, reading.at_s - 0.1)
    live.take(said(reading))
    live.take(said(msgspec.structs.replace(reading, at_s=reading.at_s + 1)))
    snapshot = live.snapshot(reading.at_s + 1)
    assert snapshot.gpu.number("fan_pct") == 37.5
    assert snapshot.series.of("fan_pct")[0] == 37.5

    lines = [one for one in device_lines(snapshot, 80) if isinstance(one, ShownReading)]
    assert ("fan", "38 %") in [(one.label, one.value) for one in lines]
    (spark,) = (one for one in readings(snapshot, TimeView()) if one.label == "fan")
    assert (spark.value, spark.past) == ("38 %", snapshot.series.of("fan_pct"))
    assert "| `fan_pct` | % | Of the fan's top speed. | mean | 2 | sparkline |" in metrics()
