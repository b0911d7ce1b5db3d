"""The pane at the bottom: its data, open tab and scroll positions; other modules make the rows."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from gpudash import format as fmt
from gpudash.availability import unable
from gpudash.diagnosis.headline import try_lines
from gpudash.present.cells import Cell, Parts, Scroll, beside, cell, following, rule
from gpudash.present.change_axis import PlacedAxis
from gpudash.present.history import Table, history_rows, table_of
from gpudash.present.ranks import in_sight as ranks_in_sight
from gpudash.present.ranks import rank_rows, spread, verdict
from gpudash.present.wording import counted
from gpudash.protocol.training import Ability
from gpudash.snapshot import KEPT_LINES, Result, Snapshot
from gpudash.tui.arrangement import SURE_PANE
from gpudash.tui.keys import key_for
from gpudash.tui.preferences import Tab
from gpudash.tui.widgets.comparison import comparison_rows
from gpudash.tui.widgets.log import is_trouble, kept, log_rows, wrapped
from gpudash.tui.widgets.panel import MARGIN, Frame, Panel

TITLES: dict[Tab, tuple[str, str]] = {
    "history": ("history", "hist"),
    "ab": ("A/B", "A/B"),
    "ranks": ("ranks", "rank"),
    "profile": ("profile", "prof"),
    "output": ("output", "out"),
    "log": ("log", "log"),
}
"""Tab → its title, and its short title."""
DIGIT = "⁵"
"""The pane's key; it marks the open tab."""
LEAST_WHY = 8
"""Fewest free rows in which the pane tells why, too."""
LEAST_SAID = 34
"""Fewest columns for what stands beside the table that tells why."""
RANKS_FRAME = 3
"""Rows of the ranks' table for its rule, its head and what holds them up."""
VALUE = 12
"""Columns of a lever's value in the rule."""
EMPTY: dict[Tab, str] = {
    "output": "nothing printed so far",
    "ranks": "one process trains",
}
"""Text of an empty tab."""


class Pane(Panel):
    """The pane; tabs of ranks and output exist only in a run that has them."""

    def __init__(self, axis: Callable[[], PlacedAxis | None] = lambda: None) -> None:
        super().__init__(id="pane")
        self._axis = axis  # the ledger's
        self._axis_before: PlacedAxis | None = None
        self.tab: Tab = "history"
        self._snapshot = Snapshot()
        self._table = Table()
        self.lines: dict[Tab, deque[str]] = {
            "log": deque(maxlen=KEPT_LINES),
            "output": deque(maxlen=KEPT_LINES),
        }
        self._unread: Counter[Tab] = Counter()
        self._trouble: set[Tab] = set()
        self._scrolls: dict[Tab, Scroll] = {}

    # ── data ────────────────────────────────────────────────────────────────────────────

    def show(self, snapshot: Snapshot, lines: Sequence[str] = (), *, rewound: bool = False) -> None:
        """`rewound` drops all earlier lines."""
        if rewound:
            for tab, lines_before in self.lines.items():
                lines_before.clear()
                self._scrolls.pop(tab, None)
            self._unread.clear()
            self._trouble.clear()
        self._add("log", lines)
        before, self._snapshot = self._snapshot, snapshot
        has_changed = _shown(snapshot) != _shown(before)
        if has_changed:
            self._keep_place(snapshot.results)
            self._table = table_of(snapshot, on_gpu=_on_gpu(snapshot))
        axis_before, self._axis_before = self._axis_before, self._axis()
        if has_changed or lines or rewound or axis_before != self._axis_before:
            self.repaint()

    def print(self, lines: Sequence[str], replaces: int) -> None:
        """Append a script's output; it replaces this many of the newest lines."""
        if lines or replaces:
            printed = self.lines["output"]
            for _ in range(min(replaces, len(printed))):
                printed.pop()
            self._add("output", lines)
            self.repaint()

    def _add(self, tab: Tab, lines: Sequence[str]) -> None:
        here, reading = self.lines[tab], self._scrolls.get(tab, Scroll())
        gone = max(len(here) + len(lines) - KEPT_LINES, 0)
        if gone and reading.row is not None:  # keep the same line in place
            self._scrolls[tab] = Scroll(row=max(reading.row - gone, 0))
        here.extend(kept(line) for line in lines)
        if self.tab != tab:
            self._unread[tab] += len(lines)
            if any(map(is_trouble, lines)):
                self._trouble.add(tab)

    def open(self, tab: Tab) -> None:
        self.tab = tab
        self._unread[tab] = 0
        self._trouble.discard(tab)
        self.repaint()

    def _can(self, ability: Ability) -> bool:
        return unable(ability, self._snapshot) is None

    @property
    def tabs(self) -> tuple[Tab, ...]:
        there = {
            "ranks": bool(self._snapshot.ranks),
            "output": self._can("type") or bool(self.lines["output"]),
        }
        return tuple(tab for tab in TITLES if there.get(tab, True) or tab == self.tab)

    def next_tab(self, direction: int = 1) -> None:
        tabs = self.tabs
        self.open(tabs[(tabs.index(self.tab) + direction) % len(tabs)])

    @property
    def wanted_rows(self) -> int:
        """Rows that the open tab needs, with its frame; 0 if any number does."""
        if self.tab == "ranks":
            return len(self._snapshot.ranks) + RANKS_FRAME
        return SURE_PANE if self.tab == "ab" and self._snapshot.comparison is not None else 0

    @property
    def is_of_running_ab(self) -> bool:
        shown = self._snapshot.comparison
        return self.tab == "ab" and shown is not None and not shown.is_over

    # ── cursor and scrolling ────────────────────────────────────────────────────────────

    @property
    def chosen_result(self) -> Result | None:
        """The result under the cursor; None without results, or if another tab is open."""
        rows = self._table.results
        if self.tab != "history" or not rows:
            return None
        return rows[self._scroll.chosen(len(rows))]

    def scroll_rows(self, direction: int) -> None:
        self._go_to(self._scroll.chosen(self._count) + direction)

    def scroll_pages(self, direction: int) -> None:
        self.scroll_rows(direction * max(self.inside.height - 2, 1))

    def find(self, text: str) -> bool:
        """Go to the next row or line with the text, wrapping around; return whether found."""
        texts = self._texts()
        if (found := following(texts, self._scroll.chosen(len(texts)), text)) is not None:
            self._go_to(found)
        return found is not None

    def clicked(self, x: int, y: int) -> None:  # noqa: ARG002  # any column of a row
        shown = self._scroll.in_sight(self._count, self._list_rows)
        if self.tab == "history" and 0 < y <= len(shown):
            self._go_to(shown[y - 1])

    def _keep_place(self, results: Sequence[Result]) -> None:
        """Keep the cursor on its row when earlier rows have been dropped."""
        scroll, before = self._scrolls.get("history", Scroll()), self._table.results
        if scroll.row is None or not before:
            return
        here = before[scroll.chosen(len(before))].number
        row = next((i for i, one in enumerate(results) if one.number == here), scroll.row)
        first = max(scroll.first + row - scroll.row, 0)
        self._scrolls["history"] = Scroll(row=row, first=first)

    def _texts(self) -> Sequence[str]:
        if self.tab == "history":
            return [row.configuration for row in self._table.results]
        if self.tab == "ranks":
            return [f"rank {row.rank}" for row in self._snapshot.ranks]
        return self.lines.get(self.tab, ())

    @property
    def _scroll(self) -> Scroll:
        top = Scroll(row=0) if self.tab == "ranks" else Scroll()  # other lists end with the newest
        return self._scrolls.get(self.tab, top)

    @property
    def _cursor(self) -> int | None:
        return self._scroll.chosen(self._count) if self.has_focus else None

    @property
    def _count(self) -> int:
        return len(self._texts())

    @property
    def _list_rows(self) -> int:
        """Rows of a list below its head; below the ranks is what holds them up."""
        return max(self.inside.height - 1 - (self.tab == "ranks"), 1)

    def _go_to(self, row: int) -> None:
        count, scroll = self._count, self._scroll
        if self.tab in ("history", "ranks"):
            scroll = scroll.at(row, count, self._list_rows)
        else:  # lines have no cursor: the row is the lowest visible line
            scroll = scroll.at(row, count, 1, least=min(self.inside.height, count) - 1)
        self._scrolls[self.tab] = scroll
        self.repaint()

    # ── painting ────────────────────────────────────────────────────────────────────────

    def body(self, width: int, height: int) -> Iterator[Parts]:
        rows = [*self._of_tab(width, height)]
        yield from rows
        yield from _why(self._snapshot, width, height - len(rows))

    def _of_tab(self, width: int, height: int) -> Iterator[Parts]:
        if self.tab == "history":
            shown = self._scroll.in_sight(self._count, self._list_rows)
            head = height > 1
            yield from history_rows(self._table, shown, width, cursor=self._cursor, head=head)
        elif self.tab == "ab":
            compared, price = self._snapshot.comparison, self._snapshot.price
            yield from comparison_rows(compared, width, height, price, self._axis())
        elif self.tab == "ranks" and self._snapshot.ranks:
            in_view = self._scroll.in_sight(self._count, self._list_rows)
            ranks = ranks_in_sight(self._snapshot, in_view)
            yield from rank_rows(self._snapshot, ranks, width, cursor=self._cursor)
            held_up = verdict(self._snapshot)
            said = fmt.clip(held_up or spread(self._snapshot), width - 2)
            yield ((f" {said}", "busy" if held_up else "dim"),)
        elif self.lines.get(self.tab):
            lines, last = self.lines[self.tab], self._scroll.chosen(self._count)
            ink = "text" if self.tab == "output" else "dim"
            yield from log_rows(lines, last, width, height, ink)
        elif self.tab == "profile":
            yield ((f" {_profile_line(self._snapshot)}", "dim"),)
        elif self.tab in EMPTY:
            yield ((f" {EMPTY[self.tab]}", "dim"),)

    # ── the rule ────────────────────────────────────────────────────────────────────────

    def frame(self) -> Frame:
        return self._tabs(), (*self._about(), *self._beyond())

    def _about(self) -> Iterator[Cell]:
        shown = self._snapshot.comparison
        if self.tab == "ab" and shown is not None:
            setting = f"{fmt.plain(shown.lever)}={fmt.clip(fmt.plain(shown.b), VALUE)}"
            what = counted(shown) if shown.of_starts else setting
            yield cell("tune" if shown.doing else what, "strong", rank=2)
            if not shown.of_starts and not shown.is_over and not shown.doing:
                yield cell(f"{shown.pairs} of at most {shown.planned_pairs} pairs", "dim", rank=3)
        elif self.tab == "history" and self._table.results:
            yield cell("tried one after another: no proof", "dim", rank=4)
        elif self.tab == "ranks" and verdict(self._snapshot) and (of_all := spread(self._snapshot)):
            yield cell(of_all, "dim", rank=2)

    def _tabs(self) -> tuple[Cell, ...]:
        unread, comparison = self._unread["log"], self._snapshot.comparison
        counts = {
            "history": f" {len(self._table.results):,}",
            "ab": f" {len(self._snapshot.verdicts)}",
            "ranks": f" {len(self._snapshot.ranks)}",
            "output": "!" * ("output" in self._trouble),
            "log": f" {unread:,}{'!' * ('log' in self._trouble)}" if unread else "",
        }
        if comparison is not None and not comparison.is_over:
            counts["ab"] = " ◌"
        long = [f"{TITLES[tab][0]}{counts.get(tab, '')}" for tab in self.tabs]
        room = self.size.width - 2 * MARGIN - len(DIGIT)
        fits = sum(map(len, long)) + MARGIN * (len(long) - 1) <= room
        titles = long if fits else [TITLES[tab][1] for tab in self.tabs]
        return tuple(
            Cell(
                parts=((DIGIT if tab == self.tab else "", "dim"), (title, self._tab_ink(tab))),
                rank=0 if tab == self.tab else 1,
                action=f"pane('{tab}')",
            )
            for tab, title in zip(self.tabs, titles, strict=True)
        )

    def _tab_ink(self, tab: Tab) -> str:
        return "bad" if tab in self._trouble else "strong" if tab == self.tab else "dim"

    def _beyond(self) -> tuple[Cell, ...]:
        if self.tab in ("history", "ranks"):
            in_view = self._scroll.in_sight(self._count, self._list_rows)
            last, above = in_view.stop - 1, in_view.start
            what = "row" if self.tab == "history" else "rank"
        else:
            last, above, what = self._scroll.chosen(self._count), 0, "line"
        below = self._count - 1 - last
        return tuple(
            cell(f"{count:,} {what}{'s' * (count > 1)} {where}", "dim", rank=3)
            for count, where in ((above, "above ↑"), (below, "below ↓"))
            if count > 0
        )


def _why(snapshot: Snapshot, width: int, height: int) -> Iterator[Parts]:
    """Yield what `e` shows, where a tab leaves room for it: its table, and beside it the rest."""
    answer = snapshot.answer
    if answer is None or height < LEAST_WHY:
        return
    yield ()
    yield rule(f"why ({key_for('why')})", width)
    wide = max(map(len, answer.why), default=0) + 4
    room = width - wide - 1
    said = [] if room < LEAST_SAID else [*answer.evidence, *try_lines(answer)]
    lines = chain.from_iterable(wrapped(fmt.plain(one), room) for one in said)
    table = (((f" {fmt.clip(line, width - 2)}", "dim"),) for line in answer.why)
    yield from beside(table, (((line, "dim"),) for line in lines), wide if said else width)


def _on_gpu(snapshot: Snapshot) -> bool:
    return snapshot.gpu is not None and snapshot.gpu_missing is None


def _shown(snapshot: Snapshot) -> tuple[object, ...]:
    can = unable("type", snapshot) is None
    return (
        *(snapshot.results, _on_gpu(snapshot), snapshot.comparison, snapshot.verdicts),
        *(snapshot.ranks, snapshot.phases, snapshot.straggler, snapshot.hang),
        *(can, _profile_line(snapshot)),
        snapshot.answer,
    )


def _profile_line(snapshot: Snapshot) -> str:
    profile, key = snapshot.profile, key_for("timeline")
    if profile is not None:
        last = profile.first_step + profile.steps - 1
        return f"steps {profile.first_step:,} to {last:,} were traced: {key} shows the profile"
    reason = unable("profile", snapshot)
    return f"no profile of this run yet: {reason or f'{key} makes one'}"
