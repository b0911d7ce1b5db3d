"""The parts of the main screen: what each shows of a run, and all of them as one frame.

The screen feeds and paints its parts by these functions. So does `frame`, which needs no terminal
and no event loop.
"""

from collections.abc import Sequence
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from gpudash.protocol.commands import Plan
from gpudash.snapshot import Snapshot
from gpudash.tui import bars
from gpudash.tui.arrangement import PanelChoice, is_roomy, is_too_small, places, too_small
from gpudash.tui.cells import Parts, exactly
from gpudash.tui.charts.axes import TimeView
from gpudash.tui.control import Control
from gpudash.tui.inbox import NO_MAIL, Mail
from gpudash.tui.keys import ACTIVE, KEYS, RECORDED, REPLAY_KEYS, Key
from gpudash.tui.preferences import Tab
from gpudash.tui.widgets.answer import AnswerStrip
from gpudash.tui.widgets.bars import Bar, Scrubber, StatusLine
from gpudash.tui.widgets.levers import LeverPanel
from gpudash.tui.widgets.painted import Painted
from gpudash.tui.widgets.pane import Pane
from gpudash.tui.widgets.readings import Activity, DevicePanel
from gpudash.tui.widgets.step_time import StepTime
from gpudash.tui.widgets.throughput import ThroughputChart


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What of a run the user has chosen to see."""

    panels: PanelChoice = PanelChoice()
    focus: str = "levers"
    """The panel with the focus."""
    tab: Tab = "results"
    """The pane's tab."""
    time: TimeView = TimeView()

    @property
    def keys_of(self) -> str:
        """The panel whose keys apply; for the pane's A/B tab `ab`, as it has its own keys."""
        return "ab" if self.focus == "pane" and self.tab == "ab" else self.focus


class Panels:
    """The parts of the main screen."""

    def __init__(self) -> None:
        self.header, self.footer = Bar(id="header"), Bar(id="footer")
        self.status = StatusLine(id="status")
        self.answer = AnswerStrip(id="answer")
        self.throughput = ThroughputChart(id="throughput")
        self.charts = (self.throughput, Activity(id="activity"), StepTime(id="step"))
        self.levers = LeverPanel(id="levers")
        self.device = DevicePanel(id="device")
        self.pane = Pane()
        self.scrubber = Scrubber(id="scrubber")

    def show(self, control: Control, mail: Mail, time: TimeView) -> None:
        """Pass a snapshot and new lines to every part but answer and footer."""
        snapshot, levers = control.snapshot, control.levers
        undo, redo = levers.label("undo"), levers.label("redo")
        with self.header.contained():
            self.header.show(bars.header(snapshot), bars.header_right(snapshot))
        with self.status.contained():
            next_start, ending, line = levers.next_start, control.ending, control.profile_status
            self.status.show(
                bars.status(snapshot, next_start, undo, redo, ending=ending, profile=line)
            )
        self.show_charts(snapshot, time)
        with self.levers.contained():
            fixed = RECORDED if snapshot.playback else levers.why_fixed
            answer = snapshot.answer or control.quiet.estimated
            self.levers.show(levers.rows(), replace(snapshot, answer=answer), fixed)
        with self.pane.contained():
            self.pane.show(snapshot, mail.lines, rewound=mail.rewound)
            self.pane.print(mail.output, mail.replaces)
        with self.device.contained():
            self.device.show(snapshot, control.cores)
        with self.scrubber.contained():
            self.scrubber.show(snapshot.playback)

    def show_charts(self, snapshot: Snapshot, time: TimeView) -> None:
        """Pass a snapshot and the time range to the charts."""
        for chart in self.charts:
            with chart.contained():
                chart.show(snapshot, time)

    def show_footer(
        self,
        control: Control,
        keys: Sequence[Key],
        view: View,
        size: tuple[int, int],
    ) -> None:
        """Show the keys that matter now."""
        with self.footer.contained():
            self.footer.show(
                bars.footer(
                    control.snapshot,
                    keys,
                    focus=view.keys_of,
                    roomy=is_roomy(*size),
                    comparing=control.comparing,
                    proposing=control.headline.first is not None,
                    undoing=bool(control.levers.label("undo")),
                    refused=control.refused_now,
                )
            )

    def wanted(self, shown: PanelChoice, width: int) -> PanelChoice:
        """Return the choice of panels with the rows that they need."""
        return replace(
            shown,
            lanes=self.answer.lanes,
            lever_rows=self.levers.wanted_rows,
            pane_rows=self.pane.wanted_rows,
            status_rows=self.status.wanted_rows(width),
        )


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
    control, panels = _control_of(snapshot), Panels()
    panels.pane.open(view.tab)
    panels.throughput.maximised = view.panels.zoomed == "throughput"
    panels.answer.show(control.headline, snapshot, last_start_s)
    panels.show(control, mail, view.time)
    panels.show_footer(control, keys, view, size)
    shown = replace(view.panels, scrubber=snapshot.playback is not None)
    regions = places(*size, panels.wanted(shown, size[0]))
    if is_too_small(*size):
        return [exactly(((row, ""),), size[0]) for row in (too_small(*size), *[""] * (size[1] - 1))]
    rows: list[list[tuple[int, Parts]]] = [[] for _ in range(size[1])]
    parts = {part.id: part for part in vars(panels).values() if isinstance(part, Painted)}
    parts |= {chart.id: chart for chart in panels.charts}
    for name, region in regions.items():
        painted = parts[name].painted_at(region.size, focused=name == view.focus)
        for y, row in enumerate(painted, region.y):
            rows[y].append((region.x, row))
    return [tuple(part for _, row in sorted(row_parts) for part in row) for row_parts in rows]


def _control_of(snapshot: Snapshot) -> Control:
    """Return the control of a run that nothing can be asked of."""

    def none() -> NoReturn:
        raise NotImplementedError  # a frame shows, and asks nothing of a run

    control = Control(none, Plan(workload=snapshot.workload, settings={}))
    control.snapshot = snapshot
    return control
