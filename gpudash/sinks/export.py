"""Export a recording to other programs: as CSV and JSON, JSON lines, or to any sink."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import Any

from gpudash.errors import UsageError
from gpudash.recording.csv_format import cells, json_lines, objects
from gpudash.recording.csv_reader import CsvReader, open_recording
from gpudash.recording.files import created, shown
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Closed, LineReader
from gpudash.sinks.recording import RecordingWriter
from gpudash.sinks.sink import opener

BATCH = 4096
"""Most rows in memory at once."""


def export(source: Path, target: Path, *, force: bool = False) -> int:
    """Return the number of invalid lines, which are left out. Raises UsageError, RecordingError."""
    if target.suffix == ".parquet":
        raise UsageError("Parquet went: export to .csv, which DuckDB, polars and pandas read")
    if target.suffix not in FORMATS:
        raise UsageError(f"cannot export to {target.name}: it ends in none of {', '.join(FORMATS)}")
    with closing(open_recording(source)) as reader:
        if target.suffix == ".csv" and isinstance(reader, CsvReader):
            raise UsageError(f"{shown(source)} is a CSV already; valid: its log")
        FORMATS[target.suffix](reader, target, force)
    return reader.refused


def export_to(source: Path, destinations: Iterable[tuple[str, str]], *, force: bool = False) -> int:
    with closing(open_recording(source)) as reader, ExitStack() as on_failure:
        sinks = []
        for name, target in destinations:
            sinks.append(opener(name)(target, reader.origin, force=force))
            on_failure.callback(sinks[-1].abandon)
        for item in reader:
            if not isinstance(item, Closed):
                for sink in sinks:
                    sink.take(item)
        on_failure.pop_all()
        for sink in sinks:
            sink.close(None)
    return reader.refused


def _to_csv(reader: LineReader, target: Path, force: bool) -> None:  # noqa: FBT001  # one signature
    writer = RecordingWriter(target, reader.origin, force=force, log=False)
    for item in reader:
        writer.take(item)
    writer.abandon()  # a log that was not closed in order gives an incomplete export


def _to_json_lines(reader: LineReader, target: Path, force: bool) -> None:  # noqa: FBT001  # …
    rows = _rows(reader)
    with created(target, force=force) as output:
        while batch := list(islice(rows, BATCH)):
            output.append(json_lines(batch))


FORMATS = {".csv": _to_csv, ".jsonl": _to_json_lines}


def _rows(reader: LineReader) -> Iterator[dict[str, Any]]:
    for item in reader:
        if isinstance(item, Interval):
            yield from objects(cells(item, reader.origin))
