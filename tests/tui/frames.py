"""What the main screen shows of a snapshot, as one frame: without a terminal and an event loop."""

from collections.abc import Sequence
from itertools import islice
from unittest.mock import patch
from weakref import WeakKeyDictionary

from msgspec.structs import replace
from textual.geometry import Size
from textual.widget import Widget

from gpudash.present.cells import Parts, exactly
from gpudash.protocol.commands import Plan
from gpudash.snapshot import Snapshot
from gpudash.tui.arrangement import is_too_small, places, too_small
from gpudash.tui.control import Control
from gpudash.tui.inbox import NO_MAIL, Mail
from gpudash.tui.keys import ACTIVE, KEYS, REPLAY_KEYS, Key
from gpudash.tui.panels import Panels, View
from gpudash.tui.widgets.painted import Painted
from tests.tui.fake_engine import FakeEngine, referred, with_recent

SIZES: WeakKeyDictionary[Widget, Size] = WeakKeyDictionary()
"""Those of widgets that no app lays out."""
_laid_out = Widget.size
patch.object(Painted, "size", property(lambda one: SIZES.get(one) or _laid_out.fget(one))).start()


def text_of(row: Parts) -> str:
    """A row as text."""
    return "".join(text for text, _ in row)


def painted_at(widget: Painted, size: Size, *, focused: bool) -> list[Parts]:
    """Return a widget's rows at a size, which it has from then on: no app lays it out."""
    SIZES[widget] = size
    widget.set_reactive(Painted.has_focus, focused)
    rows = [*islice(widget.rows(*size), size.height)] if all(size) else []
    return [exactly(row, size.width) for row in (*rows, *[()] * (size.height - len(rows)))]


def painted(widget: Painted, size: tuple[int, int], *, focused: bool = True) -> list[str]:
    """Return what a widget shows at a size: no app runs."""
    return [*map(text_of, painted_at(widget, Size(*size), focused=focused))]


def frame(
    snapshot: Snapshot,
    view: View,
    size: tuple[int, int],
    *,
    mail: Mail = NO_MAIL,
    last_start_s: float | None = None,
) -> list[Parts]:
    """Return what the main screen shows of a snapshot: rows of texts with the names of inks."""
    keys = REPLAY_KEYS if snapshot.playback else KEYS
    token = ACTIVE.set(keys)
    try:
        return _frame(snapshot, view, size, keys, mail, last_start_s)
    finally:
        ACTIVE.reset(token)


def _frame(
    snapshot: Snapshot,
    view: View,
    size: tuple[int, int],
    keys: Sequence[Key],
    mail: Mail,
    last_start_s: float | None,
) -> list[Parts]:
    control, panels = control_of(snapshot), Panels()
    panels.pane.open(view.tab)
    panels.activity.whole = view.panels.zoomed == "activity"
    panels.answer.show(control.headline, snapshot, last_start_s)
    panels.show(control, mail, view.time)
    panels.show_footer(control, keys, view, size)
    shown = replace(view.panels, scrubber=snapshot.playback is not None)
    regions = places(*size, panels.wanted(shown))
    if is_too_small(*size):
        return [exactly(((row, ""),), size[0]) for row in (too_small(*size), *[""] * (size[1] - 1))]
    rows: list[list[tuple[int, Parts]]] = [[] for _ in range(size[1])]
    parts = {part.id: part for part in vars(panels).values() if isinstance(part, Painted)}
    parts |= {chart.id: chart for chart in panels.charts}
    for name, region in regions.items():
        for y, row in enumerate(
            painted_at(parts[name], region.size, focused=name == view.focus), region.y
        ):
            rows[y].append((region.x, row))
    return [tuple(part for _, row in sorted(row_parts) for part in row) for row_parts in rows]


def control_of(snapshot: Snapshot, engine: FakeEngine | None = None) -> Control:
    """Return the control of a run; without an engine nothing can be asked of it."""

    def opened() -> FakeEngine:
        assert engine is not None, "a frame shows, and asks nothing of a run"
        return engine

    control = Control(opened, Plan(workload=snapshot.workload, settings={}))
    control.snapshot = with_recent(referred(snapshot))
    return control
