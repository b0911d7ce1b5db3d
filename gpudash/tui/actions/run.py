"""Actions on the run: pause, restart, typing, recording and quitting."""

from datetime import datetime
from functools import partial

from gpudash import format as fmt
from gpudash.errors import ExistsError, GpudashError
from gpudash.tui.actions.asking import Asking
from gpudash.tui.keys import key_for
from gpudash.tui.screens.dialog import AskChoice, AskKey, AskText
from workloads import find_workload, names


class RunActions(Asking):
    """Actions on the run as a whole."""

    def action_workload(self) -> None:
        """Choose a workload; a different one starts at once."""
        if not self._ask(lambda: self.control.require("restart")):
            return
        current = self.control.workload

        def answered(name: str | None) -> None:
            if name is not None and name != current:
                self._ask(lambda: self.control.start_workload(name))

        choices = {name: find_workload(name).summary for name in names()}
        hint = "another workload starts from new weights"
        if ends := self.control.ab.ending:
            hint += f"\n{ends}"
        self._open(AskChoice("workload", choices, current, hint), answered)

    def action_pause(self) -> None:
        self._ask(self.control.pause_or_resume)

    def action_restart(self) -> None:
        self._ask(self.control.restart)

    def action_type_line(self) -> None:
        if not self._ask(lambda: self.control.require("type")):
            return

        def answered(line: str | None) -> None:
            if line:  # a held Enter must not answer the script
                self.control.engine.type(f"{'' if line.isspace() else line}\n")

        script = fmt.plain(self.control.workload)
        hint = "a line for its input(); a space alone is an empty line"
        self._open(AskText(f"to {script}", "", hint), answered)

    def action_new_row(self) -> None:
        self._ask(self.control.new_row)

    def action_memory(self) -> None:
        """Request who owns device memory; the report opens a dialog."""
        self._ask(self.control.ask_memory_owners)

    # ── recording ───────────────────────────────────────────────────────────────────────

    def action_record(self) -> None:
        """Complete the recording, or ask for a new file to record to."""
        if self.control.snapshot.recording is not None:
            self.control.engine.stop_recording()
            return
        if not self._ask(lambda: self.control.require("record")):
            return

        def answered(name: str | None) -> None:
            if name is not None and name.strip():
                self._record(name.strip())
            elif name is not None:
                self.notify("a recording needs a file name", severity="error", markup=False)

        now = datetime.now()  # noqa: DTZ005  # the user's own clock
        proposed = f"gpudash-{self.control.file_stem}-{now:%Y%m%d-%H%M%S}.csv"
        self._open(
            AskText("record to", proposed, "a CSV file; its JSON and its log stand beside it"),
            answered,
        )

    def _record(self, name: str, *, force: bool = False) -> None:
        try:
            self.control.record(name, force=force)
        except ExistsError as error:
            question = f"{error.fact}. Replace it?"
            again = partial(self._record, name, force=True)
            self._confirm(question, "replace the file", "keep it", again)
        except GpudashError as error:
            self._refuse(error)

    # ── leaving ─────────────────────────────────────────────────────────────────────────

    def action_leave(self) -> None:
        """Quit; ask first if a recording would be cut short or a user's script runs."""
        recording = self.control.snapshot.recording
        if self.control.leavable and not self.control.ending:
            self._ask_stop_or_leave()
        elif recording is None or self.control.dead or self.control.leavable:
            self._quit()
        else:
            question = f"Recording to {recording.path}, {recording.rows:,} rows so far. Quit?"
            self._confirm(question, "complete the file and quit", "go on", self._quit)

    def _ask_stop_or_leave(self) -> None:
        def answered(key: str | None) -> None:
            if key == "s":
                self.control.end()
                self.main_screen.show()
            elif key == "l":
                self._quit()

        recording = self.control.snapshot.recording
        how = "by SIGTERM this time" if self.control.interrupted else "as Ctrl-C does"
        completed = f" The recording {recording.path} is completed." if recording else ""
        question = f"{self.control.workload} is running. Stop it, or leave it running?{completed}"
        if ends := self.control.ab.ending:
            question += f" Either way {ends}."
        answers = {
            "s": f"stop it, {how}, and quit",
            "l": "leave it running and quit; gpudash attach shows it again",
        }
        self._open(AskKey(question, answers, "stays"), answered)

    def action_leave_now(self) -> None:
        """Quit; with a user's script, first send it Ctrl-C, and the next time ask."""
        if not self.control.leavable:
            self._quit()
        elif self.control.interrupted:
            self.action_leave()
        else:
            self.control.interrupt()
            script, again = fmt.plain(self.control.workload), key_for("leave_now")
            self.notify(f"{script} was sent Ctrl-C; {again} again asks to quit", markup=False)

    def _quit(self) -> None:
        """Complete a recording and quit; a running script goes on."""
        if self.control.leavable:
            self.control.engine.leave()
        if self.control.snapshot.recording is not None:
            self.control.engine.stop_recording()
        self.exit()
