"""The palette: Textual's own, but for what it cannot do before its list is laid out."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.command import CommandList, CommandPalette


class Palette(CommandPalette):
    """Finds a command by its name."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pagedown", "turn('page_down')", "further", show=False),
        Binding("pageup", "turn('page_up')", "back", show=False),
    ]

    async def action_turn(self, way: str) -> None:
        """Go further or back by a page; a list that is not laid out yet has no pages."""
        if self.query_one(CommandList).scrollable_content_region:
            await self.run_action(f"command_list({way!r})")
