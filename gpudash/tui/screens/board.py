"""The main screen's layout: its parts stand where `arrangement` says."""

from textual.geometry import NULL_OFFSET, NULL_SPACING, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from gpudash.tui.arrangement import Shown, places


class Board(Layout):
    """Places the parts of the screen as `arrangement` says."""

    name = "board"

    def __init__(self) -> None:
        self.shown = Shown()

    def arrange(
        self,
        parent: Widget,  # noqa: ARG002  # Textual's signature
        children: list[Widget],
        size: Size,
        greedy: bool = True,  # noqa: ARG002, FBT001, FBT002  # Textual's signature
    ) -> ArrangeResult:
        """Return where each child stands; one that is not in sight is not placed."""
        regions = places(*size, self.shown)
        return [
            WidgetPlacement(regions[child.id], NULL_OFFSET, NULL_SPACING, child)
            for child in children
            if child.id in regions
        ]
