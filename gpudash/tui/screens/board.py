"""The main screen's layout, by the regions from `arrangement`."""

from textual.geometry import NULL_OFFSET, NULL_SPACING, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from gpudash.tui.arrangement import PanelChoice, places


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
