"""`gpudash ab --dashboard` of any change: the dashboard is fed with both sides, as one training."""

import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from msgspec.structs import replace

from gpudash.cli.changes_report import ChangeFindings
from gpudash.cli.dashboard import show
from gpudash.cli.rounds import Asked, NoResultError, Started
from gpudash.cli.stdout import complain
from gpudash.compare.ab import sides_of
from gpudash.compare.rounds import of_budget, seconds_to_decide
from gpudash.errors import Exit, RecordingError
from gpudash.format import clip, minutes, plain
from gpudash.protocol.commands import Plan
from gpudash.protocol.session import ComparisonShown
from gpudash.snapshot import ENDED, BlockShown, Listener, Marker, Series, ShownState, Snapshot
from gpudash.views.in_turns import followed, in_turns

if TYPE_CHECKING:
    from gpudash.run.session import Session

SIDES = "ab"
MOST_NAME = 24
"""Most columns of a side's name in the status line."""
MOST_BLOCKS = 400
DOES: dict[ShownState, str] = {"starting": "starts", "paused": "waits"}
"""What a side does, unless it trains."""


class _Past(Struct, frozen=True):
    """What is kept of the starts before."""

    series: Series = Series()
    blocks: tuple[BlockShown, ...] = ()
    markers: tuple[Marker, ...] = ()


class ChangesScreen:
    """Watches the starts of both, and stands for a session: nothing can be asked of it."""

    sink_failures: Mapping[str, RecordingError] = {}

    def __init__(
        self,
        found: ChangeFindings,
        asked: tuple[Asked, Asked],
        arguments: Namespace,
        until_s: float,
    ) -> None:
        self._found, self._until_s = found, until_s
        self._arguments = Namespace(**{"rate": 4.0} | vars(arguments) | {"pane": "ab"})
        self._names = [clip(plain(one.name), MOST_NAME) for one in asked]
        self._workload = " or ".join(dict.fromkeys(one.command.name for one in asked))
        self._said: list[str] = []
        self._listener: Listener | None = None
        self._newest: Sequence[Snapshot] = ()
        self._start: Started | None = None  # the first side of the newest start
        self._past = self._now = _Past()
        self._known, self._takes = self._so_far(), self._how_long()
        self._shown = Snapshot(workload=self._workload, can=(), comparison=self._known)
        self._error: Exception | None = None

    def run(self, compare: Callable[[], NoResultError | None], stop: Callable[[], None]) -> None:
        """Show what `compare` does on a thread, until the user quits. Raise what it raises."""
        self._stop = stop
        self._thread = Thread(target=self._work, args=(compare,), name="gpudash-comparing")
        plan = Plan(workload=self._workload, settings={})
        show(lambda: cast("Session", self), plan, self._arguments, first=self._shown)
        if self._thread.is_alive():
            complain("gpudash: both are asked to end")
        self.close()
        for line in self._said:
            complain(line)
        if self._error is not None:
            raise self._error

    def _work(self, compare: Callable[[], NoResultError | None]) -> None:
        try:
            failed = compare()
        except Exception as error:  # noqa: BLE001  # raised again once the screen is gone
            self._error = error
            failed = NoResultError(Exit.FAILED, plain(str(error)))
        self._end(failed or NoResultError(Exit.DONE))

    # ── as a session ────────────────────────────────────────────────────────────────────

    def start(self, listener: Listener) -> None:
        self._listener = listener
        listener.on_log(self._said)
        self._thread.start()

    def close(self) -> None:
        """Have both sides end, and wait for that."""
        self._stop()
        if self._thread.ident is not None:
            self._thread.join()

    # ── as whoever watches the starts ───────────────────────────────────────────────────

    def say(self, text: str) -> None:
        self._said.append(text)
        if self._listener is not None:
            self._listener.on_log((plain(text),))

    def show(self, running: Sequence[Started]) -> None:
        newest = [one.snapshot for one in running]
        if all(map(lambda one, other: one is other, newest, self._newest)) and self._newest:
            return
        self._newest = newest
        if running[0] is not self._start:
            self._begin(running[0])
        # the side whose block runs, or the one that was started last
        lead = max(reversed(running), key=lambda one: one.side.ran[-1][0] if one.side.ran else 0.0)
        seen, turns = lead.snapshot, bool(lead.side.ran)
        state: ShownState = "training" if turns and seen.state == "paused" else seen.state
        number = len(self._found.measured) + 1
        if state in ENDED:
            self._tell(self._shown, status=f"start {number}: both are being ended")
            return
        name = (
            f"{SIDES[lead.which].upper()}, {self._names[lead.which]}, {DOES.get(state, 'trains')}"
        )
        status = f"start {number}: {'A and B train in turns' if turns else name}"
        blocks = [*self._past.blocks, *sorted(_blocks(running), key=lambda one: one.begin_s)]
        series = followed(self._past.series, in_turns(*(one.series for one in newest)))
        self._now = _Past(series, tuple(blocks[-MOST_BLOCKS:]), self._now.markers)
        self._tell(seen, state=state, status=status, comparison=self._with(running))

    def _begin(self, first: Started) -> None:
        """Note that another start has begun."""
        self._start = first
        begun_s = time.monotonic() - first.began_s
        label = f"start {len(self._found.measured) + 1}"
        marker = Marker(kind="restart", at_s=begun_s, label=label)
        ended_s = self._shown.elapsed_s
        blocks = (replace(one, end_s=one.end_s or ended_s) for one in self._now.blocks)
        markers = (*self._now.markers, marker)
        self._past = self._now = _Past(self._now.series, tuple(blocks), markers)
        self._known, self._takes = self._so_far(), self._how_long()

    def _so_far(self) -> ComparisonShown:
        found = self._found
        if found.measured and not found.why_not:
            return replace(found.shown(), verdict=None)
        nothing: dict[str, Any] = dict.fromkeys(("change", "low", "high", "verdict", "failure"))
        return ComparisonShown(
            lever=found.lever, a=found.a, b=found.b, pairs=0, planned_pairs=0, history=(), **nothing
        )

    def _with(self, running: Sequence[Started]) -> ComparisonShown:
        """Return what is known so far, with the rates of the start that runs."""
        blocks = [[one for start in self._found.measured for one in start.blocks[side]]
                  for side in (0, 1)]  # fmt: skip
        for one in running:
            blocks[one.which] += one.side.blocks
        return replace(self._known, sides=sides_of(*blocks) if all(blocks) else {})

    def _how_long(self) -> str:
        found, arguments = self._found, self._arguments
        if found.fixed:
            return f"{arguments.starts} of each in all"
        if found.measured and not found.why_not:
            if few := of_budget(arguments.budget, found.rounds[0]):
                return few
            if more_s := seconds_to_decide(found.rounds, found.within):
                return f"a decision would take about {minutes(more_s)} more"
        return "until it is sure"

    def _tell(self, seen: Snapshot, **how: Any) -> None:
        left = f"{minutes(self._until_s - time.monotonic())} left"
        whole = {
            "workload": self._workload,
            "notice": "; ".join(filter(None, (self._found.why_apart, self._takes, left))),
            "series": self._now.series,
            "blocks": self._now.blocks,
            "markers": self._now.markers,
            **NOTHING,
        }
        self._shown = replace(seen, **whole | how)
        if self._listener is not None:
            self._listener.on_snapshot(self._shown)

    def _end(self, failed: NoResultError) -> None:
        found, code = self._found, failed.code
        known, why = self._so_far(), failed.why or found.why_not
        if known.pairs:
            known = replace(known, verdict="; ".join([found.verdict, *found.differences]))
        else:
            known = replace(known, failure=why or "no start of both has ended")
        states: dict[int, ShownState] = {Exit.DONE: "finished", Exit.INTERRUPTED: "stopped"}
        state = states.get(code, "failed")
        if self._listener is not None:
            self._listener.on_output([*map(plain, failed.printed)], 0)
        status = plain(why) or f"{state}: q quits, and prints the verdict"
        self._tell(self._shown, state=state, status=status, notice="", comparison=known)


NOTHING: dict[str, Any] = {
    **dict.fromkeys(("can", "levers", "results", "notes", "asides", "verdicts"), ()),
    **dict.fromkeys(("answer", "pausing", "planned_steps", "planned_s", "instruments_ms")),
    "found": "",
}
"""What is of one training alone."""


def _blocks(running: Sequence[Started]) -> list[BlockShown]:
    return [
        BlockShown(
            begin_s=begin_s - one.began_s,
            end_s=None if end_s is None else end_s - one.began_s,
            side="b" if one.which else "a",
        )
        for one in running
        for begin_s, end_s in one.side.ran
    ]
