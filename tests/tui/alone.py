"""A widget in an app of its own, for the mouse."""

from textual.app import App, ComposeResult
from textual.widget import Widget


class Alone(App[None]):
    """It has nothing but this widget, and notes the actions asked of it."""

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self.widget, self.asked = widget, []
        widget.styles.width = widget.styles.height = "1fr"

    def compose(self) -> ComposeResult:
        yield self.widget

    async def run_action(self, action, *args, **kwargs):
        self.asked.append(action)
        return True

    def lines(self) -> list[str]:
        return [self.widget.render_line(y).text for y in range(self.widget.size.height)]
