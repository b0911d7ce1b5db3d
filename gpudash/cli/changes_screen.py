"""`gpudash ab --dashboard` of any change: the dashboard is fed with both sides, as one training."""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

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
from gpudash.snapshot import (
    ENDED,
    BlockShown,
    Listener,
    Marker,
    RecentMeans,
    ShownState,
    Snapshot,
)
from gpudash.views.in_turns import followed, in_turns

if TYPE_CHECKING:
    from gpudash.run.session import Session

MOST_NAME = 24
"""Most columns of a side's name in the status line."""
MOST_BLOCKS = 400
DOES: dict[ShownState, str] = {"starting": "starts", "paused": "waits"}
"""What a side does, unless it trains."""


class ChangesScreen:
    """Watches the starts of both, and stands for a session: nothing can be asked of it."""

    sink_failures: Mapping[str, RecordingError] = {}
    """None: nothing can be recorded."""

    def __init__(
        self,
        found: ChangeFindings,
        asked: tuple[Asked, Asked],
        arguments: Namespace,
        until_s: float,
    ) -> None:
        self._found, self._until_s = found, until_s
        self._arguments = Namespace(**{"rate": 4.0} | vars(arguments) | {"pane": "ab"})
        self._names = [
            f"{side}, {clip(plain(name), MOST_NAME)},"
            for side, name in zip("AB", told_apart(found.a, found.b), strict=True)
        ]
        self._workload = " or ".join(dict.fromkeys(one.command.name for one in asked))
        self._said: list[str] = []
        self._listener: Listener | None = None
        self._newest: Sequence[Snapshot] = ()
        self._first: Started | None = None  # of the newest start
        self._known, self._takes = self._so_far(), self._how_long()
        self._shown = Snapshot(workload=self._workload, can=(), comparison=self._known)
        self._past = self._shown  # the last of the start before
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
        if self._thread.ident is None:  # the screen was left before it was painted
            self._thread.start()
        self._thread.join()

    # ── as whoever watches the starts ───────────────────────────────────────────────────

    def say(self, text: str) -> None:
        self._said.append(text)
        if self._listener is not None:
            self._listener.on_log((plain(text),))

    def show(self, running: Sequence[Started]) -> None:
        newest = [one.snapshot for one in running]
        if newest == self._newest:
            return
        self._newest = newest
        if running[0] is not self._first:
            self._begin(running[0])
        # the side whose block runs, or the one that was started last
        lead = max(reversed(running), key=lambda one: one.side.ran[-1][0] if one.side.ran else 0.0)
        in_turn, state, name = bool(lead.side.ran), lead.snapshot.state, self._names[lead.which]
        if in_turn and state == "paused":  # between two blocks
            state = "training"
        what = "A and B train in turns" if in_turn else f"{name} {DOES.get(state, 'trains')}"
        if state in ENDED:
            self._tell(self._shown, status=f"{self._number}: both are being ended")
            return
        blocks = sorted(chain(*map(_blocks, running)), key=lambda one: one.begin_s)
        self._tell(
            lead.snapshot,
            state=state,
            status=f"{self._number}: {what}",
            comparison=self._with(running),
            series=followed(self._past.series, in_turns(*(one.series for one in newest))),
            blocks=(*self._past.blocks, *blocks)[-MOST_BLOCKS:],
            markers=self._past.markers,
        )

    @property
    def _number(self) -> str:
        return f"start {len(self._found.measured) + 1}"

    def _begin(self, first: Started) -> None:
        """Note that another start has begun."""
        self._first, last = first, self._shown
        blocks = (replace(one, end_s=one.end_s or last.elapsed_s) for one in last.blocks)
        at_s = time.monotonic() - first.began_s
        marker = Marker(kind="restart", at_s=at_s, label=self._number)
        self._past = replace(last, blocks=tuple(blocks), markers=(*last.markers, marker))
        self._known, self._takes = self._so_far(), self._how_long()

    def _so_far(self) -> ComparisonShown:
        found = self._found
        a, b = told_apart(found.a, found.b)
        if found.measured and not found.why_not:
            return replace(found.shown(), a=a, b=b, verdict=None)
        nothing: dict[str, Any] = dict.fromkeys(("change", "low", "high", "verdict", "failure"))
        return ComparisonShown(
            lever=found.lever, a=a, b=b, pairs=0, planned_pairs=0, history=(), **nothing
        )

    def _with(self, running: Sequence[Started]) -> ComparisonShown:
        """Return what is known so far; in the first start, the rates of its blocks."""
        a, b = (
            [block for one in running if one.which == side for block in one.side.blocks]
            for side in (0, 1)
        )
        if self._known.pairs or not (a and b):
            return self._known
        return replace(self._known, sides=sides_of(a, b))

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
            "notice": "; ".join(filter(None, (left, self._takes, self._found.why_apart))),
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
        state = "failed" if found.why_not else states.get(code, "failed")
        if self._listener is not None:
            self._listener.on_output([*map(plain, failed.printed)], 0)
        status = plain(why) or f"{state}: q quits, and prints the verdict"
        self._tell(self._shown, state=state, status=status, notice="", comparison=known)


NOTHING: dict[str, Any] = {
    **dict.fromkeys(("can", "levers", "results", "notes", "asides", "verdicts"), ()),
    **dict.fromkeys(("answer", "pausing", "planned_steps", "planned_s", "instruments_ms")),
    "found": "",
    "recent": RecentMeans(),
}
"""What is of one training alone."""


def _blocks(of: Started) -> Iterator[BlockShown]:
    for begin_s, end_s in of.side.ran:
        yield BlockShown(
            begin_s=begin_s - of.began_s,
            end_s=None if end_s is None else end_s - of.began_s,
            side="b" if of.which else "a",
        )


def told_apart(a: str, b: str) -> tuple[str, str]:
    """Leave out the words with which both begin, but for the last of them: the others need room."""
    words = zip(a.split(" "), b.split(" "), strict=False)
    shared = [one for one, _ in takewhile(lambda both: both[0] == both[1], words)]
    if not shared:
        return a, b
    last, left = shared[-1].rsplit("/")[-1], len(" ".join(shared))
    return last + a[left:], last + b[left:]
