"""The parts of the main screen: what each shows of a run."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from gpudash.availability import RECORDED
from gpudash.present.axes import TimeView
from gpudash.snapshot import Snapshot
from gpudash.tui import bars
from gpudash.tui.arrangement import PanelChoice, is_roomy
from gpudash.tui.control import Control
from gpudash.tui.inbox import Mail
from gpudash.tui.keys import Key
from gpudash.tui.preferences import Tab
from gpudash.tui.widgets.answer import AnswerStrip
from gpudash.tui.widgets.bars import Bar, Scrubber, StatusLine
from gpudash.tui.widgets.levers import LeverPanel
from gpudash.tui.widgets.pane import Pane
from gpudash.tui.widgets.readings import Activity
from gpudash.tui.widgets.step_time import StepTime
from gpudash.tui.widgets.throughput import ThroughputChart


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What of a run the user has chosen to see."""

    panels: PanelChoice = PanelChoice()
    focus: str = "levers"
    """The panel with the focus."""
    tab: Tab = "history"
    """The pane's tab."""
    time: TimeView = TimeView()

    @property
    def keys_of(self) -> str:
        """The panel whose keys apply; of the pane its tab."""
        return self.tab if self.focus == "pane" else self.focus


class Panels:
    """The parts of the main screen."""

    def __init__(self) -> None:
        self.header, self.footer = Bar(id="header"), Bar(id="footer")
        self.status = StatusLine(id="status")
        self.answer = AnswerStrip(id="answer")
        self.throughput = ThroughputChart(id="throughput")
        self.activity = Activity(id="activity")
        self.charts = (self.throughput, self.activity, StepTime(id="step"))
        self.levers = LeverPanel(id="levers")
        self.pane = Pane(lambda: self.levers.axis)
        self.scrubber = Scrubber(id="scrubber")

    def show(self, control: Control, mail: Mail, time: TimeView) -> None:
        """Skip answer and footer."""
        snapshot, levers = control.snapshot, control.levers
        with self.header.contained():
            self.header.show(bars.header(snapshot), bars.header_right(snapshot))
        with self.status.contained():
            next_start, ending, line = levers.next_start, control.ending, control.profile_status
            self.status.show(bars.status(snapshot, next_start, ending=ending, profile=line))
        self.show_charts(snapshot, time)
        with self.levers.contained():
            fixed = RECORDED if snapshot.playback else control.why_not("levers")
            answer = snapshot.answer or control.quiet.estimated
            self.levers.show(levers.rows(), replace(snapshot, answer=answer), fixed)
        with self.pane.contained():
            self.pane.show(snapshot, mail.lines, rewound=mail.rewound)
            self.pane.print(mail.output, mail.replaces)
        with self.scrubber.contained():
            self.scrubber.show(snapshot.playback)

    def show_charts(self, snapshot: Snapshot, time: TimeView) -> None:
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
        with self.footer.contained():
            self.footer.show(
                bars.footer(
                    control.snapshot,
                    keys,
                    control.requests,
                    focus=view.keys_of,
                    roomy=is_roomy(*size),
                )
            )

    def wanted(self, shown: PanelChoice) -> PanelChoice:
        return replace(
            shown,
            lanes=self.answer.lanes,
            lever_rows=self.levers.wanted_rows,
            every_lever_rows=self.levers.every_row,
            reading_rows=self.activity.wanted_rows,
            pane_rows=self.pane.wanted_rows,
            alone=self.pane.is_of_running_ab,
        )
