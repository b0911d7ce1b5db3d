"""A recording told to its end at once: what the dashboard shows after a replay, as one record."""

from contextlib import closing
from itertools import count
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpudash.errors import SourceError, UsageError
from gpudash.protocol import Envelope, Failed, Finished, Notice, Parted, Started
from gpudash.recording.csv_reader import UNKNOWN
from gpudash.recording.log import Origin
from gpudash.recording.provenance import Failure, Metadata, beside, read
from gpudash.run.fold import Fold
from gpudash.run.replay import LATE_S, NOTHING, Player, Replay
from gpudash.snapshot import Hang, RankRow, Snapshot, Straggler
from gpudash.views.time_breakdown import TimeBreakdown


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """All that a recording tells."""

    name: str
    """The file's, as it was named."""
    origin: Origin
    metadata: Metadata | None
    """What the JSON beside says; None where there is none."""
    snapshot: Snapshot
    """At its end."""
    started: Started | None
    """How the last worker started; None where none did."""
    steps_per_s: float | None
    """Of the last worker's steps after its first one."""
    account: TimeBreakdown
    failures: tuple[Failure, ...]
    notices: tuple[str, ...]
    unknown: str | None
    """What a CSV without a log does not know."""
    refused: int
    """Lines that make no sense."""


def replayed(path: Path) -> Replayed:
    """Tell a recording to its end: the log beside a CSV where there is one. Raises UsageError."""
    clock = count(step=2 * LATE_S)  # what has not come by the next look will not come
    replay = Replay(path, Player(now=lambda: float(next(clock))))
    replay.player.seek_end()
    fold = _FoldToEnd(replay.origin.began_s)
    with closing(replay):
        try:
            while not fold.at_end:
                fold.read(replay)
        except SourceError as error:
            raise UsageError(str(error)) from error
        snapshot = fold.snapshot(replay.now())
    metadata = read(beside(replay.path))
    known = metadata.account if metadata else None  # the run's own, of single steps
    return Replayed(
        name=path.name,
        origin=replay.origin,
        metadata=metadata,
        snapshot=snapshot,
        started=fold.started,
        steps_per_s=fold.whole_run.steps_per_s,
        account=known or fold.time.account(),
        failures=tuple(fold.failures),
        notices=tuple(fold.notices),
        refused=replay.refused,
        unknown=None if replay.path.suffix == ".jsonl" else UNKNOWN,
    )


class _FoldToEnd(Fold):
    """Folds what a replay tells, and keeps what a session hands on, or shows no more."""

    def __init__(self, began_s: float) -> None:
        super().__init__(NOTHING, began_s)
        self.at_end = False
        self.started: Started | None = None
        self.failures: list[Failure] = []
        self.notices: list[str] = []
        self._began_s = began_s
        self._last_rows: dict[int, RankRow] = {}  # of each rank that has ended, what it did last
        self._last_straggler: Straggler | None = None  # where one has ended

    def read(self, replay: Replay) -> None:
        """Fold what is due; at the end nothing is but where the replay stands."""
        *envelopes, _playback = replay.read()
        for envelope in envelopes:
            self._keep_last(envelope)
            item = self.take(envelope)
            if item is not None:
                self.fold(item)
                self._keep(item)
        self.at_end = replay.at_file_end and not envelopes

    def snapshot(self, now_s: float, hang: Hang | None = None) -> Snapshot:
        """Return what is to be shown at the end: what ranks that have ended did last."""
        snapshot = super().snapshot(now_s, hang)
        ranks = tuple(
            replace(self._last_rows.get(row.rank, row), steps=row.steps) for row in snapshot.ranks
        )
        straggler = self._last_straggler or snapshot.straggler
        return replace(snapshot, ranks=ranks, straggler=straggler)

    def _keep_last(self, envelope: Envelope) -> None:
        match envelope.body:
            case Started():
                self._last_rows.pop(envelope.rank, None)
                self._last_straggler = None
            case Finished() | Failed() | Parted() as end:
                rows = {row.rank: row for row in self.ranks.rows(end.at_s)}
                if isinstance(end, Parted):
                    rows = {envelope.rank: rows[envelope.rank]} if rows else {}
                self._last_rows = rows | self._last_rows
                self._last_straggler = self._last_straggler or self.ranks.straggler

    def _keep(self, item: object) -> None:
        match item:
            case Started():
                self.started = item
            case Failed():
                at_s = item.at_s - self._began_s
                self.failures.append(Failure(at_s=at_s, kind=item.kind, sentence=item.sentence))
            case Notice():
                self.notices.append(item.text)
