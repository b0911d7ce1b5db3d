"""Write all values of a recording as OpenMetrics with their times, for `promtool` to take in."""

from array import array
from pathlib import Path

from gpudash.protocol.envelope import Envelope
from gpudash.recording.files import Output, refuse_existing
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from gpudash.sinks.current import Current, wall_s
from gpudash.sinks.exported import Exported, Labels
from gpudash.sinks.openmetrics import END, head, labelled, number
from gpudash.sinks.sink import Sink
from gpudash.views.time_breakdown import TimeBreakdown


class History(Sink):
    """Holds the values, 16 bytes each, as the format has those of a name together."""

    every_step = False

    def __init__(self, target: str, origin: Origin, /, *, force: bool = False) -> None:
        """Begin a draft of the file. Raises RecordingError."""
        if not force:
            refuse_existing(Path(target))
        self._output = Output(Path(target), draft=True)
        self._origin, self._current = origin, Current(origin)
        self._held: dict[str, tuple[Exported, dict[Labels, tuple[array[float], array[float]]]]] = {}

    def take(self, item: Envelope | Interval, /) -> None:
        """Note the current values after each row."""
        self._current.take(item)
        if not isinstance(item, Interval):
            return
        at_s = wall_s(self._origin, item.ended_s)
        for of, points in self._current.families(item.ended_s):
            series = self._held.setdefault(of.sample, (of, {}))[1]
            for labels, value, _ in points:
                times, values = series.setdefault(labels, (array("d"), array("d")))
                times.append(at_s)
                values.append(value)

    def close(self, _account: TimeBreakdown | None, /) -> None:
        """Write the file. Raises RecordingError."""
        for of, series in self._held.values():
            self._output.append(head(of).encode())
            for labels, (times, values) in series.items():
                name = of.sample + labelled(labels)
                lines = (
                    f"{name} {number(value)} {at_s:.3f}\n"
                    for at_s, value in zip(times, values, strict=True)
                )
                self._output.append("".join(lines).encode())
        self._output.append(END.encode())
        self._output.close()
        self._output.take_place()

    def abandon(self) -> None:
        """Leave no file."""
        self._output.discard()
