"""Actions on profiles: tracing steps, reading the trace, showing it as a timeline."""

import asyncio
import importlib
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from textual import work

from gpudash.errors import GpudashError
from gpudash.protocol.inspections import Profiled
from gpudash.tui.actions.asking import Asking
from gpudash.tui.keys import PROFILED_STEPS, key_for

if TYPE_CHECKING:  # they load numpy, which most runs of the dashboard never need
    from gpudash.tui.profiles import ShownProfile
    from gpudash.tui.screens.timeline import TimelineScreen


class ProfileActions(Asking):
    """Actions on the newest profile."""

    _profile: Profiled | None = None  # the profile that was read last
    _shown: "ShownProfile | None" = None  # its timeline and summary
    _timeline: "TimelineScreen | None" = None

    def action_timeline(self) -> None:
        profile = self.control.snapshot.profile
        if profile is None:
            self.action_profile()
        elif profile != self._profile or self._shown is None:
            self._read_profile(profile)
        else:
            self._show_profile(self._shown)

    def action_profile(self) -> None:
        """Trace the next steps; their timeline opens when it is ready."""
        if self._ask(lambda: self.control.require("profile")):
            self._ask_for_profile()

    @work
    async def _ask_for_profile(self) -> None:
        from gpudash.tui.profiles import new_path  # noqa: PLC0415  # after the first frame

        recording = self.control.snapshot.recording
        now = datetime.now()  # noqa: DTZ005  # the user's own clock
        beside = recording.path if recording else None
        try:  # on a thread: an unreachable home may block for long
            path = await asyncio.to_thread(new_path, self.control.file_stem, beside, now)
        except OSError as error:
            self._refuse(error)
        else:
            self._ask(lambda: self.control.profile(path))

    def _take_profile(self) -> None:
        profile = self.control.new_profile()
        if profile is not None:
            self._read_profile(profile)
            if profile.steps < PROFILED_STEPS:
                has = f"{profile.steps} of {PROFILED_STEPS} steps"
                self.notify(f"the profile ended early: it has {has}")

    @work(exclusive=True, group="profile")
    async def _read_profile(self, profile: Profiled) -> None:
        """Read a trace on a thread and show it; then summarise it on a thread, as long again."""
        before = self._shown
        of = self.control.snapshot.profile_of  # the settings may have changed since
        self._set_profile_note("reading the profile …")
        try:
            shown = await asyncio.to_thread(_loaded, Path(profile.path))
        except (GpudashError, OSError) as error:
            self._set_profile_note(str(error))
            return
        self._profile, self._shown = profile, shown
        self._set_profile_note("")
        self._show_profile(shown)
        from gpudash.tui.profiles import sum_up  # noqa: PLC0415  # loads numpy

        self._shown = await asyncio.to_thread(sum_up, shown, before)
        if self._shown.summary is not None:
            self.control.engine.deepen(*of, self._shown.summary)
        if self._timeline is not None:
            self._timeline.take(self._shown)

    def _set_profile_note(self, line: str) -> None:
        self.control.profile_note = line
        self.main_screen.show()

    def _show_profile(self, shown: "ShownProfile") -> None:
        """Open the timeline, unless a dialog is open in which the user may be typing."""
        from gpudash.tui.screens.timeline import TimelineScreen  # noqa: PLC0415  # loads numpy

        timeline = TimelineScreen(self.control, shown)
        if self.screen is self.main_screen:
            self.push_screen(timeline)
        elif self.screen is self._timeline:
            self.switch_screen(timeline)
        else:
            self.notify(f"the profile is there; {key_for('timeline')} shows it")
            return
        self._timeline = timeline


def _loaded(path: Path) -> "ShownProfile":
    """Call this on a thread, as its imports are slow too."""
    from gpudash.tui.profiles import load  # noqa: PLC0415  # loads numpy

    importlib.import_module("gpudash.tui.screens.timeline")
    return load(path)
