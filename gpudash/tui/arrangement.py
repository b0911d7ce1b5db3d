"""Where each part of the main screen stands at each size: a pure function, in cells.

From 110 columns and 34 rows on everything is in sight. A smaller terminal keeps the answer,
throughput and step time, and one place below them for the panel that was chosen last.
"""

from typing import Literal, TypeAlias

import msgspec
from textual.geometry import Region

Part: TypeAlias = Literal["levers", "device", "activity", "pane"]
"""What may stand in the one place of a small terminal."""

LEAST = (60, 16)
"""Columns and rows below which nothing sensible can be shown."""
WIDE, TALL = 110, 34
"""From here on the panels beside, and those below, have a place of their own."""
LANES_FROM_ROWS = 20
"""Fewer rows show the answer without its lanes."""

LEAST_CHARTS, LEAST_CHARTS_LARGE = 6, 16
"""Rows that the charts keep, one beside the other and in two rows, where the pane wants more."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What the user wants to see."""

    chosen: Part = "levers"
    """In the one place of a small terminal."""
    device: bool = False
    """The device in the levers' place."""
    zoomed: str = ""
    """The panel that has all of the room; empty for none."""
    scrubber: bool = False
    pane_rows: int = 0
    """What the pane would like to have, where that is more than its share."""


def places(width: int, height: int, shown: Shown) -> dict[str, Region]:
    """Return the region of each part in sight by its id; none overlap."""
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
    answer, room = room.split_horizontal(_answer_rows(width, height))
    side = "device" if shown.device else "levers"
    arranged = _large if is_roomy(width, height) else _small
    panels = arranged(room, side, shown)
    return {**bars, "answer": answer, **panels}


def is_too_small(width: int, height: int) -> bool:
    """Whether nothing sensible can be shown."""
    return width < LEAST[0] or height < LEAST[1]


def is_roomy(width: int, height: int) -> bool:
    """Whether every panel has a place of its own."""
    return is_wide(width) and height >= TALL


def is_wide(width: int) -> bool:
    """Tell whether the levers and the pane are in sight at once."""
    return width >= WIDE


def _answer_rows(width: int, height: int) -> int:
    """Return the rows of the answer: framed with evidence, its line and lanes, or the line."""
    if is_roomy(width, height):
        return 6
    return 4 if height >= LANES_FROM_ROWS else 1


def _large(room: Region, side: str, shown: Shown) -> dict[str, Region]:
    """Charts and activity above, the step's time below them, levers beside, the pane beneath."""
    # seven rows inside it hold an A/B; what a tall terminal has more, charts fill better
    pane_rows = min(max(room.height // 4, min(room.height * 3 // 10, 9), 8), 18)
    pane_rows = max(pane_rows, min(shown.pane_rows, room.height - LEAST_CHARTS_LARGE))
    upper, pane = room.split_horizontal(-pane_rows)
    left, right = upper.split_vertical(-min(max(room.width * 2 // 7, 34), 42))
    charts, step = left.split_horizontal(left.height * 6 // 11)
    rate, activity = charts.split_vertical(max(charts.width // 2, charts.width - 58))
    return {"throughput": rate, "activity": activity, "step": step, side: right, "pane": pane}


def _small(room: Region, side: str, shown: Shown) -> dict[str, Region]:
    """Charts side by side, and below them the panel chosen; two where it is wide."""
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
