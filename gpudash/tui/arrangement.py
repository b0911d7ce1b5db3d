"""The layout of the main screen at each size, in cells.

From 110 columns and 34 rows on the charts and the pane have places of their own; from 180
columns on the charts are at the right. In a smaller terminal the ledger's place is that of the
panel chosen last.
"""

from typing import Literal, TypeAlias

import msgspec
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

ChosenPanel: TypeAlias = Literal["levers", "throughput", "activity", "step", "pane"]
"""Panels that share one place in a small terminal."""

LEAST = (60, 16)
"""Fewest columns and rows in which anything is shown."""
WIDE, TALL = 110, 34
"""Columns and rows from which all panels have their own place."""
BESIDE = 180
"""Columns from which the charts are beside the ledger, …"""
LEDGER_WIDTH = 120
"""… and the columns of the ledger there."""
LANES_FROM_ROWS = 20
"""Fewest rows in which the answer has its lanes."""
HIGH_LANES_FROM_ROWS = 44
"""Fewest rows in which a lane has two, where the charts are beside the ledger."""
ANSWER_ROWS = 3
"""The limit, its reason, and what to try."""
READINGS_ROWS = 3
"""Rows of the readings in a small terminal: a rule, and two of readings."""
LEAST_PANE, LEAST_CHART = 4, 5
"""Fewest rows of the pane and of a chart, with their rules."""
SURE_PANE = 10
"""Rows that the pane has in any case if it needs them: those of an A/B with some intervals."""
CURVE_ROWS = 10
"""Rows of the throughput's chart with a drawn curve and the band of an A/B."""
USUAL_ROWS = 10
"""Rows of header, answer with three lanes, status and footer."""
LEAST_STACK = 11
"""Fewest rows below the answer that more than one panel shares."""


class PanelChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The user's choice of panels, and the rows that they need."""

    chosen: ChosenPanel = "levers"
    """The panel in the shared place of a small terminal."""
    zoomed: str = ""
    """The panel that takes all of the room; empty for none."""
    scrubber: bool = False
    lanes: int = 2
    """The answer's lanes."""
    lever_rows: int = 10
    """Rows of the ledger for each lever to be in sight."""
    every_lever_rows: int = 10
    """Rows of the ledger without its fold: there is none where half of the room is enough."""
    reading_rows: int = 20
    """Rows of the readings where they stand below the charts, which have the others."""
    pane_rows: int = 0
    """Rows that the pane needs; used if above its usual share."""
    alone: bool = False
    """Whether the pane has the step chart's rows too, as while an A/B runs."""


def places(width: int, height: int, shown: PanelChoice) -> dict[str, Region]:
    """Return the region of each visible part by its id; none overlap."""
    if is_too_small(width, height):
        return {"too-small": Region(0, 0, width, height)}
    rows = 3 + shown.scrubber  # header, status and footer
    bars = {
        "header": Region(0, 0, width, 1),
        "status": Region(0, height - 2, width, 1),
        "footer": Region(0, height - 1, width, 1),
    }
    if shown.scrubber:
        bars["scrubber"] = Region(0, height - 3, width, 1)
    room = Region(0, 1, width, height - rows)
    if shown.zoomed:
        return {**bars, shown.zoomed: room}
    rows_each = 1 + (width >= BESIDE and height >= HIGH_LANES_FROM_ROWS)
    lanes = 1 + rows_each * shown.lanes if height >= LANES_FROM_ROWS and shown.lanes else 0
    answer, room = room.split_horizontal(ANSWER_ROWS + lanes)
    if not is_roomy(width, height):
        return {**bars, "answer": answer, **_small(room, shown)}
    if width >= BESIDE:
        return {**bars, "answer": answer, **_beside(room, shown)}
    pane_rows = _pane_rows(height - shown.scrubber, shown)
    return {**bars, "answer": answer, **_stacked(room, pane_rows, shown)}


def notices_margin(width: int, height: int, shown: PanelChoice) -> int:
    """Notices appear above the pane, or above the status if a panel has its place."""
    regions = places(width, height, shown)
    lowest = regions.get("pane" if not shown.zoomed else "status", regions.get("status"))
    return height - lowest.y if lowest is not None else 0


def is_too_small(width: int, height: int) -> bool:
    return width < LEAST[0] or height < LEAST[1]


def too_small(width: int, height: int) -> str:
    return f"terminal too small: {width}×{height}, needs at least {LEAST[0]}×{LEAST[1]}"


def is_roomy(width: int, height: int) -> bool:
    """Return whether every panel has its own place."""
    return width >= WIDE and height >= TALL


def _stacked(room: Region, pane_rows: int, shown: PanelChoice) -> dict[str, Region]:
    rest, pane = room.split_horizontal(-pane_rows)
    ledger, charts = rest.split_horizontal(min(shown.lever_rows, rest.height - LEAST_CHART))
    left, readings = charts.split_vertical(room.width * 3 // 5)
    return {"levers": ledger, **_charts(left, shown), "activity": readings, "pane": pane}


def _beside(room: Region, shown: PanelChoice) -> dict[str, Region]:
    left, right = room.split_vertical(LEDGER_WIDTH)
    has_room = shown.every_lever_rows <= room.height // 2
    rows = shown.every_lever_rows if has_room else shown.lever_rows
    ledger, pane = left.split_horizontal(min(rows, room.height - LEAST_PANE))
    charts, readings = right.split_horizontal(-min(shown.reading_rows, room.height // 2))
    return {"levers": ledger, **_charts(charts, shown), "activity": readings, "pane": pane}


def _charts(room: Region, shown: PanelChoice) -> dict[str, Region]:
    if shown.alone or room.height < 2 * LEAST_CHART - 1:
        return {"step" if shown.chosen == "step" else "throughput": room}
    rate, step = room.split_horizontal((room.height + 1) // 2)
    return {"throughput": rate, "step": step}


def _pane_rows(height: int, shown: PanelChoice) -> int:
    """Ignore the number of lanes, so that it does not change what the pane shows."""
    shared = height - USUAL_ROWS - shown.lever_rows
    if shown.alone:
        return max(shared - CURVE_ROWS, SURE_PANE)
    wanted = max(shared // 4, shown.pane_rows, LEAST_PANE)
    return min(wanted, max(shared - LEAST_CHART, SURE_PANE))


def _small(room: Region, shown: PanelChoice) -> dict[str, Region]:
    if room.height < LEAST_STACK:
        return {shown.chosen: room}
    chosen = "levers" if shown.chosen == "activity" else shown.chosen
    if chosen == "pane":
        readings, pane = room.split_horizontal(READINGS_ROWS)
        return {"activity": readings, "pane": pane}
    rows = min(shown.lever_rows, room.height - READINGS_ROWS - 2)
    place, rest = room.split_horizontal(rows)
    if shown.alone:
        return {chosen: place, "pane": rest}
    readings, pane = rest.split_horizontal(READINGS_ROWS)
    return {chosen: place, "activity": readings, "pane": pane}


class Board(Layout):
    """A Textual layout that places the parts of the screen by `arrangement.places`."""

    name = "board"

    def __init__(self) -> None:
        self.shown = PanelChoice()

    def arrange(
        self,
        parent: Widget,  # noqa: ARG002  # Textual's signature
        children: list[Widget],
        size: Size,
        greedy: bool = True,  # noqa: ARG002, FBT001, FBT002  # Textual's signature
    ) -> ArrangeResult:
        regions = places(*size, self.shown)
        return [
            WidgetPlacement(regions[child.id], NULL_OFFSET, NULL_SPACING, child)
            for child in children
            if child.id in regions
        ]
