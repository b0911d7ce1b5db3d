"""The main screen: where everything stands at each size, and who is shown what."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widgets import Static

from gpudash.snapshot import Snapshot
from gpudash.tui import bars
from gpudash.tui.charts import CHARTS
from gpudash.tui.containment import Contained
from gpudash.tui.control import Control
from gpudash.tui.keys import KEYS, REPLAY_KEYS, Key
from gpudash.tui.widgets.bar import Bar
from gpudash.tui.widgets.chart import Chart
from gpudash.tui.widgets.comparison import ComparisonPanel
from gpudash.tui.widgets.device import DevicePanel
from gpudash.tui.widgets.levers import LeverPanel
from gpudash.tui.widgets.log import LogPane
from gpudash.tui.widgets.results import ResultsTable
from gpudash.tui.widgets.scrubber import Scrubber
from gpudash.tui.widgets.status import StatusLine

LEAST = (60, 16)
"""Columns and rows below which nothing sensible can be shown."""
ROOMY = (110, 34)
"""From here on everything is on screen at once; below, three panes share one place."""
FIRST_VIEW = "results"
FOUR_CHARTS_ROWS = 20
"""Fewer rows show two charts instead of four."""


def _bindings(keys: Iterable[Key]) -> list[BindingType]:
    return [
        Binding(key.keys, f"app.{key.action}", key.label or key.help, show=bool(key.label))
        for key in keys
        if not key.keys.startswith("ctrl+")
    ]


class MainScreen(Contained, Screen[None]):
    """The dashboard. It shows what it is given; actions are the app's."""

    AUTO_FOCUS = None  # keys belong to the screen, there is no focus to wander off
    BINDINGS: ClassVar[list[BindingType]] = _bindings(KEYS)

    def __init__(self, control: Control) -> None:
        super().__init__(classes=f"-view-{FIRST_VIEW}")  # later is to style everything twice
        self._control = control
        self._view = FIRST_VIEW

    def compose(self) -> ComposeResult:
        """Yield header, body, status line, footer; the panel and the notice lie above them."""
        yield Bar(id="header")
        with Container(id="body"):
            with Container(id="charts"):
                for name in CHARTS:
                    yield Chart(id=name)
            yield Bar(id="tabs")
            yield LeverPanel(id="levers")
            yield ResultsTable(id="results")
            yield LogPane(id="log")
        if self._control.player is not None:
            yield Scrubber(id="scrubber")
        yield StatusLine(id="status")
        yield Bar(id="footer")
        yield ComparisonPanel(id="comparison")
        yield DevicePanel(id="device")
        yield Static(id="too-small", markup=False)

    def on_mount(self) -> None:
        """Show what is known before anything runs: the first frame has its content."""
        self.query_one("#tabs", Bar).show(bars.tabs(self._view))
        self.show()

    def on_resize(self, event: events.Resize) -> None:
        """Choose what fits."""
        width, height = event.size
        small = width < LEAST[0] or height < LEAST[1]
        compact = width < ROOMY[0] or height < ROOMY[1]
        self.set_class(small, "-too-small")
        self.set_class(compact, "-compact")
        self.set_class(height < FOUR_CHARTS_ROWS, "-two-charts")
        self.query_one("#device", DevicePanel).fit()
        self.query_one("#log", LogPane).titled = not compact
        self.query_one("#levers", LeverPanel).titled = not compact
        if small:
            self.query_one("#too-small", Static).update(
                f"terminal too small: {width}×{height}, needs at least {LEAST[0]}×{LEAST[1]}"
            )

    @property
    def too_small(self) -> bool:
        """Whether nothing is shown but that the terminal is too small."""
        return self.has_class("-too-small")

    @property
    def compact(self) -> bool:
        """Whether three panes share one place."""
        return self.has_class("-compact")

    # ── showing ─────────────────────────────────────────────────────────────────────────

    def show(self, lines: Sequence[str] = (), *, rewound: bool = False) -> None:
        """Hand the newest state to every widget; each paints what changed."""
        control, snapshot = self._control, self._control.snapshot
        with self.query_one("#header", Bar).contained() as header:
            header.show(bars.header(snapshot))
        with self.query_one("#status", StatusLine).contained() as status:
            status.show(bars.status(snapshot, control.next_start))
        with self.query_one("#footer", Bar).contained() as footer:
            footer.show(
                bars.footer(
                    snapshot,
                    comparing=control.comparing,
                    small=self.compact,
                )
            )
        for name, chart_of in CHARTS.items():
            with self.query_one(f"#{name}", Chart).contained() as chart:
                chart.show(chart_of(snapshot))
        with self.query_one("#results", ResultsTable).contained() as results:
            results.show(snapshot.results, on_gpu=_on_gpu(snapshot))
        with self.query_one("#levers", LeverPanel).contained() as levers:
            levers.show(control.rows(), control.why_not("levers"))
        with self.query_one("#log", LogPane).contained() as log:
            if rewound:
                log.clear()
            log.add(lines)
        for scrubber in self.query(Scrubber):
            with scrubber.contained():
                scrubber.show(snapshot.playback)
        with self.query_one("#device", DevicePanel).contained() as device:
            device.show(snapshot)
        with self.query_one("#comparison", ComparisonPanel).contained() as comparison:
            comparison.show(snapshot.comparison)

    def allow_drawing(self) -> None:
        """Let the charts draw: plotext has been imported."""
        for chart in self.query(Chart):
            chart.allow_drawing()

    def view(self, name: str = "") -> None:
        """Show a pane of a small terminal: the one named, or the next one."""
        views = list(bars.VIEWS)
        self._view = name or views[(views.index(self._view) + 1) % len(views)]
        for view in views:
            self.set_class(view == self._view, f"-view-{view}")
        self.query_one("#tabs", Bar).show(bars.tabs(self._view))

    @property
    def levers(self) -> LeverPanel:
        """The lever panel."""
        return self.query_one("#levers", LeverPanel)

    def scroll_pane(self, direction: int) -> None:
        """Scroll the log, or the results where they are shown alone."""
        if self.compact and self._view == "results":
            self.query_one("#results", ResultsTable).scroll_rows(direction)
        else:
            self.query_one("#log", LogPane).scroll_rows(direction)

    def toggle_device(self) -> None:
        """Show or hide the device panel."""
        self.toggle_class("-device")

    def open_comparison(self) -> None:
        """Show the A/B panel, in place of the device panel where there is room for one."""
        self.add_class("-comparing")
        if self.compact:
            self.remove_class("-device")


class ReplayScreen(MainScreen):
    """The dashboard of a recording: some keys have another meaning."""

    BINDINGS: ClassVar[list[BindingType]] = _bindings(REPLAY_KEYS)

    def __init__(self, control: Control) -> None:
        super().__init__(control)
        self.add_class("-replay")


def _on_gpu(snapshot: Snapshot) -> bool:
    """Whether the table's device column is the GPU's: a row measured on one counts too."""
    if any(result.util_pct is not None for result in snapshot.results):
        return True
    return snapshot.gpu is not None and snapshot.gpu_missing is None
