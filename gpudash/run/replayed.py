"""A recording told to its end at once: what the dashboard shows after a replay, as one record."""

from contextlib import closing
from itertools import count
from pathlib import Path

import msgspec

from gpudash.errors import SourceError, UsageError
from gpudash.protocol import Envelope, Failed, Finished, Notice, Parted, Started
from gpudash.recording.csv_reader import UNKNOWN, log_or_csv, open_recording
from gpudash.recording.log import Origin
from gpudash.recording.provenance import Failure, Metadata, beside, read
from gpudash.run.normalise import Normaliser
from gpudash.run.replay import LATE_S, NOTHING, Player, Replay
from gpudash.snapshot import RankRow, Snapshot, Straggler
from gpudash.views.job_steps import JobSteps
from gpudash.views.live import LiveView
from gpudash.views.ranks import Ranks
from gpudash.views.throughput import WholeRun
from gpudash.views.time_breakdown import TimeAccount, TimeBreakdown


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
    source = log_or_csv(path)
    with closing(open_recording(source)) as reader:
        origin = reader.origin
    clock = count(step=2 * LATE_S)  # what has not come by the next look will not come
    replay = Replay(source, Player(now=lambda: float(next(clock))), path.name)
    replay.player.seek_end()
    fold = _Fold(origin.began_s)
    with closing(replay):
        try:
            while not fold.at_end:
                fold.take(replay)
        except SourceError as error:
            raise UsageError(str(error)) from error
        now_s = replay.now()
        ranks = tuple(
            msgspec.structs.replace(fold.last_rows.get(row.rank, row), steps=row.steps)
            for row in fold.ranks.rows(now_s)
        )
        straggler = fold.last_straggler or fold.ranks.straggler
        snapshot = msgspec.structs.replace(
            fold.live.snapshot(now_s),
            ranks=ranks,
            straggler=straggler,
        )
    metadata = read(beside(source))
    known = metadata.account if metadata else None  # the run's own, of single steps
    return Replayed(
        name=path.name,
        origin=origin,
        metadata=metadata,
        snapshot=snapshot,
        started=fold.started,
        steps_per_s=fold.whole_run.steps_per_s,
        account=known or fold.time.account(),
        failures=tuple(fold.failures),
        notices=tuple(fold.notices),
        refused=replay.refused,
        unknown=None if source.suffix == ".jsonl" else UNKNOWN,
    )


class _Fold:
    """Folds what a replay tells, as a session does."""

    def __init__(self, began_s: float) -> None:
        self.at_end = False
        self.live = LiveView(NOTHING, began_s)
        self.ranks = Ranks()
        self._job_steps = JobSteps()
        self.last_rows: dict[int, RankRow] = {}
        """Of each rank that has ended, what it did last."""
        self.last_straggler: Straggler | None = None
        """Where one has ended."""
        self.time = TimeAccount()
        self.whole_run = WholeRun()
        self.started: Started | None = None
        self.failures: list[Failure] = []
        self.notices: list[str] = []
        self._began_s = began_s
        self._normaliser = Normaliser()

    def take(self, replay: Replay) -> None:
        """Fold what is due; at the end nothing is but where the replay stands."""
        *told, _playback = replay.read()
        for envelope in told:
            self._take_ranks(envelope)
            item = self._normaliser.take(envelope)
            if item is not None:
                self.live.fold(self._job_steps.of_job(item))
                self.time.fold(item)
                self.whole_run.fold(item)
                self._keep(item)
        self.at_end = replay.at_file_end and not told

    def _take_ranks(self, envelope: Envelope) -> None:
        match envelope.body:
            case Started():
                self.last_rows.pop(envelope.rank, None)
                self.last_straggler = None
            case Finished() | Failed() | Parted() as end:
                rows = {row.rank: row for row in self.ranks.rows(end.at_s)}
                if isinstance(end, Parted):
                    rows = {envelope.rank: rows[envelope.rank]} if rows else {}
                self.last_rows = rows | self.last_rows
                self.last_straggler = self.last_straggler or self.ranks.straggler
        self.ranks.take(envelope)
        self._job_steps.take(envelope)

    def _keep(self, item: object) -> None:
        match item:
            case Started():
                self.started = item
            case Failed():
                at_s = item.at_s - self._began_s
                self.failures.append(Failure(at_s=at_s, kind=item.kind, sentence=item.sentence))
            case Notice():
                self.notices.append(item.text)
