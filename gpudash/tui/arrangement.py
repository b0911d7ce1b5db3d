"""The layout of the main screen at each size, in cells.

From 110 columns and 34 rows on everything is visible. A smaller terminal shows the answer,
throughput and step time, and below them the panel that was chosen last.
"""

from typing import Literal, TypeAlias

import msgspec
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

BottomPanel: TypeAlias = Literal["levers", "device", "activity", "pane"]
"""Panels that share one place in a small terminal."""

BOTTOM: tuple[BottomPanel, ...] = ("pane", "levers", "device", "activity")
"""The part at the bottom is the first of these that is visible."""
LEAST = (60, 16)
"""Fewest columns and rows in which anything is shown."""
WIDE, TALL = 110, 34
"""Columns and rows from which all panels have their own place."""
LANES_FROM_ROWS = 20
"""Fewest rows in which the answer has its lanes."""

LEAST_CHARTS, LEAST_CHARTS_LARGE = 6, 16
"""Rows that the pane leaves to the charts: side by side, and in two rows."""


class PanelChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The user's choice of panels."""

    chosen: BottomPanel = "levers"
    """The panel in the shared place of a small terminal."""
    device: bool = False
    """Whether the device panel takes the levers' place."""
    zoomed: str = ""
    """The panel that takes all of the room; empty for none."""
    scrubber: bool = False
    pane_rows: int = 0
    """Rows that the pane needs; used if above its usual share."""
    status_rows: int = 1
    """Rows of the status line: a refusal is shown in whole."""


def places(width: int, height: int, shown: PanelChoice) -> dict[str, Region]:
    """Return the region of each visible part by its id; none overlap."""
    if is_too_small(width, height):
        return {"too-small": Region(0, 0, width, height)}
    rows = 2 + shown.status_rows + shown.scrubber  # header, status and footer
    bars = {
        "header": Region(0, 0, width, 1),
        "status": Region(0, height - 1 - shown.status_rows, width, shown.status_rows),
        "footer": Region(0, height - 1, width, 1),
    }
    if shown.scrubber:
        bars["scrubber"] = Region(0, height - 2 - shown.status_rows, width, 1)
    room = Region(0, 1, width, height - rows)
    if shown.zoomed:
        return {**bars, shown.zoomed: room}
    answer, room = room.split_horizontal(_answer_rows(width, height))
    side = "device" if shown.device else "levers"
    arranged = _large if is_roomy(width, height) else _small
    panels = arranged(room, side, shown)
    return {**bars, "answer": answer, **panels}


def notices_margin(width: int, height: int, shown: PanelChoice) -> int:
    """Return the rows to leave below notices.

    They appear above the pane or what is in its place, or above the status if a panel is zoomed.
    """
    regions = places(width, height, shown)
    lowest = regions.get("status")
    if not shown.zoomed:
        lowest = next((regions[part] for part in BOTTOM if part in regions), lowest)
    return height - lowest.y if lowest is not None else 0


def is_too_small(width: int, height: int) -> bool:
    """Return whether the terminal is too small to show anything."""
    return width < LEAST[0] or height < LEAST[1]


def too_small(width: int, height: int) -> str:
    """Return the sentence that is shown instead."""
    return f"terminal too small: {width}×{height}, needs at least {LEAST[0]}×{LEAST[1]}"


def is_roomy(width: int, height: int) -> bool:
    """Return whether every panel has its own place."""
    return is_wide(width) and height >= TALL


def is_wide(width: int) -> bool:
    """Return whether levers and pane are visible at once."""
    return width >= WIDE


def _answer_rows(width: int, height: int) -> int:
    """Return the rows of the answer: a frame with evidence, line and lanes, or only the line."""
    if is_roomy(width, height):
        return 6
    return 4 if height >= LANES_FROM_ROWS else 1


def _large(room: Region, side: str, shown: PanelChoice) -> dict[str, Region]:
    """Return charts and activity, step time below, levers on the right, the pane at the bottom."""
    # an A/B needs seven rows inside the pane; charts make better use of further rows
    pane_rows = min(max(room.height // 4, min(room.height * 3 // 10, 9), 8), 18)
    pane_rows = max(pane_rows, min(shown.pane_rows, room.height - LEAST_CHARTS_LARGE))
    upper, pane = room.split_horizontal(-pane_rows)
    left, right = upper.split_vertical(-min(max(room.width * 2 // 7, 34), 42))
    charts, step = left.split_horizontal(left.height * 6 // 11)
    rate, activity = charts.split_vertical(max(charts.width // 2, charts.width - 58))
    return {"throughput": rate, "activity": activity, "step": step, side: right, "pane": pane}


def _small(room: Region, side: str, shown: PanelChoice) -> dict[str, Region]:
    """Return charts side by side, and below them the chosen panel; two panels if it is wide."""
    below = min(max(room.height * 8 // 17, 5), 14)
    if shown.chosen == "pane" or is_wide(room.width):
        below = max(below, min(shown.pane_rows, room.height - LEAST_CHARTS))
    charts, bottom = room.split_horizontal(-below)
    chosen_id = side if shown.chosen in ("levers", "device") else shown.chosen
    if is_wide(room.width):
        rate, rest = charts.split_vertical(room.width // 3)
        activity, step = rest.split_vertical(room.width // 3)
        pane, right = bottom.split_vertical(room.width * 3 // 5)
        panels = {"throughput": rate, "activity": activity, "step": step}
        return {**panels, "pane": pane, side: right}
    rate, step = charts.split_vertical(room.width // 2)
    return {"throughput": rate, "step": step, chosen_id: bottom}


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
        """Return the place of each visible child."""
        regions = places(*size, self.shown)
        return [
            WidgetPlacement(regions[child.id], NULL_OFFSET, NULL_SPACING, child)
            for child in children
            if child.id in regions
        ]
