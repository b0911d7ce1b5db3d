"""Replay a recording to its end at once, and return what the dashboard would then show."""

from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpudash.diagnosis.limits import Limited
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.session import Notice
from gpudash.protocol.training import Hello, State, TrainingProcess
from gpudash.recording.csv_reader import log_of
from gpudash.recording.log import Logged, LogReader, Origin
from gpudash.recording.provenance import Failure, Metadata, beside, read
from gpudash.run.fold import Fold
from gpudash.run.replay import NOTHING, is_played, sent_s
from gpudash.snapshot import Hang, RankRow, Snapshot
from gpudash.views.time_breakdown import TimeBreakdown


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a recording."""

    name: str
    """The file's name."""
    origin: Origin
    metadata: Metadata | None
    """From the JSON beside the recording; None without one."""
    snapshot: Snapshot
    """At the recording's end."""
    process: TrainingProcess | None
    """The last process that trained; None if none did."""
    steps_per_s: float | None
    """The last worker's rate, without its first step."""
    account: TimeBreakdown
    limits: tuple[Limited, ...]
    """What limited the training, the longest first."""
    failures: tuple[Failure, ...]
    notices: tuple[str, ...]
    refused: int
    """Number of invalid lines."""


def replayed(path: Path, tell: Callable[[float], None] = lambda _share: None) -> Replayed:
    """Read the log, or that beside a CSV; `tell` gets the share read so far. Raises UsageError."""
    log = log_of(path)
    with closing(LogReader(log)) as reader:
        fold = _FoldToEnd(reader.origin.began_s)
        while found := reader.read():
            fold.read(found)
            tell(reader.share_read)
    snapshot = fold.snapshot(fold.now_s)
    metadata = read(beside(log))
    known = metadata.account if metadata else None  # the run's own, from single steps
    return Replayed(
        name=path.name,
        origin=reader.origin,
        metadata=metadata,
        snapshot=snapshot,
        process=fold.process,
        steps_per_s=fold.steps_per_s,
        account=known or fold.time.account(),
        limits=tuple(fold.limits.shares()),
        failures=tuple(fold.failures),
        notices=tuple(fold.notices),
        refused=reader.refused,
    )


class _FoldToEnd(Fold):
    """Folds a replay, and keeps failures, notices and the last rows of ended ranks."""

    def __init__(self, began_s: float) -> None:
        super().__init__(NOTHING, began_s)
        self.take(Envelope(source="training", seq=0, sent_s=began_s, body=Hello()))
        self.now_s = began_s
        self.process: TrainingProcess | None = None
        self.failures: list[Failure] = []
        self.notices: list[str] = []
        self._began_s = began_s
        self._last_rows: dict[int, RankRow] = {}  # the last row of each ended rank

    def read(self, found: Iterable[Logged]) -> None:
        for one in found:
            self.now_s = max(sent_s(one), self.now_s)
            if is_played(one):
                stamped = self._normaliser.take_own(one)
                self._keep_last(stamped)
                if not stamped.rank:
                    self._keep(stamped.body)
                self.take(stamped)

    def snapshot(self, now_s: float, hang: Hang | None = None) -> Snapshot:
        snapshot = super().snapshot(now_s, hang)
        ranks = tuple(
            replace(self._last_rows.get(row.rank, row), steps=row.steps) for row in snapshot.ranks
        )
        return replace(snapshot, ranks=ranks)

    def _keep_last(self, envelope: Envelope) -> None:
        match envelope.body:
            case State(phase="training" | "paused"):
                self._last_rows.pop(envelope.rank, None)
            case State(phase="finished" | "failed" | "stopped" | "parted") as end:
                rows = {row.rank: row for row in self.live.ranks.rows(end.at_s)}
                if end.phase == "parted":
                    rows = {envelope.rank: rows[envelope.rank]} if rows else {}
                self._last_rows = rows | self._last_rows

    def _keep(self, item: object) -> None:
        match item:
            case State():
                self.process = item.process or self.process
                failed = item.failure
                if failed is not None and "fails" in item.turns:
                    at_s = item.at_s - self._began_s
                    failure = Failure(at_s=at_s, kind=failed.kind, sentence=failed.sentence)
                    self.failures.append(failure)
            case Notice():
                self.notices.append(item.text)
