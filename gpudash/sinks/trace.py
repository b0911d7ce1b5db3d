"""Write a run as a Chrome trace: a counter track for each number, markers for what happened.

`ui.perfetto.dev` and `chrome://tracing` open it. Times are microseconds since it began.
"""

import json
from pathlib import Path
from typing import Any

from gpudash.metrics import METRICS
from gpudash.protocol.answer import AnswerShown
from gpudash.protocol.commands import Plan
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.readings import GpuReading, HostReading
from gpudash.protocol.training import Progress
from gpudash.recording.files import Output, replaces
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from gpudash.sinks.current import Subject, subjects
from gpudash.sinks.sink import Sink
from gpudash.snapshot import Marker
from gpudash.views.live import LiveView
from gpudash.views.time_breakdown import TimeBreakdown

TRAINING = "training"
"""The process of the viewer that has the markers."""
MARKERS, LIMITS = 1, 2
"""Threads of it."""


class TraceFile(Sink):
    """Writes an event at a time; the file is complete at its end, and readable before."""

    every_step = False

    def __init__(self, target: str, origin: Origin, /, *, force: bool = False) -> None:
        path = Path(target)
        self._origin = origin
        self._live = LiveView(Plan(workload="", settings={}), origin.began_s)
        self._marked: tuple[Marker, ...] = ()
        self._limit: AnswerShown | None = None
        self._processes: dict[str, int] = {}
        self._file = Output(path, draft=replaces(path, force=force))
        self._file.take_place()
        self._file.append(b'{"displayTimeUnit":"ms","traceEvents":[')
        self._has_event = False
        self._process(TRAINING)
        for thread, name in ((MARKERS, "levers and pauses"), (LIMITS, "limit")):
            self._write("M", "thread_name", 0, tid=thread, args={"name": name})

    @property
    def failed(self) -> bool:
        return self._file.failed

    def take(self, item: Envelope | Interval, /) -> None:
        if isinstance(item, Interval):
            for subject in subjects(item, self._origin):
                self._row(subject, item.ended_s)
        elif isinstance(item.body, AnswerShown):
            self._tell(item.body)
        elif not isinstance(item.body, Progress | GpuReading | HostReading):
            self._live.take(item)
            self._mark()

    def close(self, _account: TimeBreakdown | None, /) -> None:
        self._file.append(b"\n]}\n")
        self._file.close()

    def discard(self) -> None:
        self._file.discard()

    def _row(self, subject: Subject, at_s: float) -> None:
        labels = dict(subject.labels)
        rank = labels.get("rank", "0")
        process = self._process(
            labels.get("hw.name") or (TRAINING if rank == "0" else f"rank {rank}")
        )
        for metric, name, value in subject.numbers():
            unit = METRICS[metric].unit if metric in METRICS else "ms"
            self._write("C", name, at_s, pid=process, args={unit or "value": value})

    def _mark(self) -> None:
        markers = self._live.markers
        last = self._marked[-1] if self._marked else None
        places = [at for at, one in enumerate(markers) if one is last]
        for marker in markers[places[-1] + 1 if places else 0 :]:
            at_s = self._origin.began_s + marker.at_s
            if marker.lasts_s:
                self._write("X", marker.label, at_s, tid=MARKERS, dur=round(marker.lasts_s * 1e6))
            else:
                self._write("i", marker.label, at_s, tid=MARKERS, s="p")
        self._marked = markers

    def _tell(self, shown: AnswerShown) -> None:
        before, self._limit = self._limit, shown
        was = before.answer.title if before is not None and before.answer is not None else ""
        if shown.answer is not None and shown.answer.title != was:
            args = {"evidence": ", ".join(shown.answer.evidence)}
            self._write("i", shown.answer.title, shown.at_s, tid=LIMITS, s="t", args=args)

    def _process(self, name: str) -> int:
        if name not in self._processes:
            number = self._processes[name] = len(self._processes) + 1
            self._write("M", "process_name", 0, pid=number, args={"name": name})
        return self._processes[name]

    def _write(self, kind: str, name: str, at_s: float, **more: Any) -> None:
        at_us = round((at_s - self._origin.began_s) * 1e6) if kind != "M" else 0
        event = {"ph": kind, "name": name, "ts": max(at_us, 0), "pid": 1, "tid": 0} | more
        separator = ",\n" if self._has_event else "\n"
        self._has_event = True
        self._file.append((separator + json.dumps(event)).encode())
