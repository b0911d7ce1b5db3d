"""Write the table of a sweep: to the terminal, as Markdown, as a plot."""

import os
import shlex
import shutil
import sys
from itertools import chain, zip_longest
from pathlib import Path

import msgspec

from gpudash.cli.stdout import say, say_json
from gpudash.compare.sweep import plot
from gpudash.compare.sweep import table as sweep_table
from gpudash.compare.sweep.file import Provenance, writing
from gpudash.compare.sweep.grid import NPROC, Sweep
from gpudash.errors import RecordingError, UsageError
from gpudash.output_file import replace_file
from gpudash.recording.files import refuse_existing, shown
from gpudash.recording.provenance import path_beside
from gpudash.reference_levers import reference_levers
from gpudash.snapshot import unreadable

BY_MACHINE = "num_workers"
"""The lever whose default depends on the machine."""


class Outputs(msgspec.Struct, frozen=True, kw_only=True):
    """The outputs of a sweep's table, besides the terminal."""

    csv: Path | None = None
    markdown: Path | None = None
    plot: Path | None = None
    json: bool = False
    """Whether the terminal gets one JSON document."""
    command: tuple[str, ...] = ()
    """The command line, for the Markdown."""

    def check(self, *, force: bool, resume: bool) -> None:
        """Raise GpudashError for outputs that could not be written at the end."""
        if resume and self.csv is None:
            raise UsageError("--resume goes with --csv FILE.csv, the file of the sweep to finish")
        if self.plot is not None:
            plot.check(self.plot)
        at_the_end = [path for path in (self.markdown, self.plot) if path is not None]
        at_once = [self.csv, path_beside(self.csv)] if self.csv is not None else []
        places = [path.absolute() for path in (*at_once, *at_the_end)]
        for path in at_the_end:
            if places.count(path.absolute()) > 1:
                raise UsageError(f"{shown(path)} is named twice; valid: a file for each output")
            check_place(path, replace=force or resume)

    def publish(self, sweep: Sweep, provenance: Provenance) -> str | None:
        """Return why a file could not be written, or None. Raises OutputError."""
        unwritten, title = None, title_of(provenance)
        results, legend = sweep.results(), sweep_table.legend(sweep.grid)
        table = sweep_table.cells(sweep.grid, results)
        remarks = unreadable(provenance.skipped_samples or 0)
        try:  # files first: they are kept even if the output fails
            if self.markdown is not None:
                line = shlex.join(self.command)
                head = f"## {title}\n\n`{line}`: {legend}."
                parts = [head, sweep_table.as_markdown(table), *remarks]
                with writing(self.markdown):
                    replace_file(self.markdown, ("\n\n".join(parts) + "\n").encode())
            if self.plot is not None:
                plot.draw(self.plot, title, sweep.grid, results)
        except RecordingError as error:
            unwritten = str(error)
        if self.json:
            say_json(msgspec.structs.replace(provenance, table=tuple(chain(*results))))
            return unwritten
        columns = shutil.get_terminal_size((160, 24)).columns
        text = sweep_table.as_text(table, columns, sweep_table.unit(sweep.grid))
        picture = plot.bars(sweep.grid, results, columns) if sys.stdout.isatty() else ""
        say("\n".join([title, legend, "", text, *remarks, *filter(None, [picture])]))
        return unwritten


def title_of(ran: Provenance) -> str:
    """Name set levers, active ones that differ from the default, and the machine's choice.

    The worker's notes replace those that they are about.
    """
    varied = ran.grid.varied
    silent = varied | {"batch_size"} if NPROC in varied else varied  # notes are of the last nproc
    notes = [both for both in zip_longest(ran.notes, ran.noted) if both[1] not in silent]
    noted = {lever for _, lever in notes}
    default = {lever.name: lever.default for lever in reference_levers(ran.workload, ran.settings)}
    fixed = {
        name: value
        for name, value in (ran.active_settings or {}).items()
        if name not in noted | varied
        and (name in ran.settings or name == BY_MACHINE or value != default.get(name, value))
    }
    head = f"{ran.workload} on {ran.device.name if ran.device else 'an unknown device'}"
    head = f"{head}: {sweep_table.pairs(fixed)}" if fixed else head
    return "; ".join([head, *(text or "" for text, _ in notes)])


def check_place(path: Path, *, replace: bool) -> None:
    """Raise RecordingError for a file that could not be written later."""
    why = None
    if path.is_dir():
        why = "it is a folder"
    elif not path.parent.is_dir():
        why = f"the folder {shown(path.parent)} does not exist"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        why = "permission denied"
    if why is not None:
        raise RecordingError(f"cannot write {shown(path)}: {why}")
    if not replace:
        refuse_existing(path)
