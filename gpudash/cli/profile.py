"""`gpudash profile`: trace a few steps with torch.profiler, and summarise the trace."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile

import msgspec

from gpudash.cli.measure import PATIENCE_S, Course, Ended, measure, training_of
from gpudash.cli.stdout import complain, say_found
from gpudash.errors import Exit, UsageError
from gpudash.protocol.records import Settings
from gpudash.recording.files import reason, refuse_existing, shown, text_of
from gpudash.recording.provenance import plain
from gpudash.snapshot import Snapshot
from gpudash.trace.accounting import summarise
from gpudash.trace.read import read
from gpudash.trace.summary import ProfileComparison, Summary, compare
from gpudash.trace.text import comparison_lines, summary_lines


class ProfileReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `gpudash profile --json` prints. None = not measured, or unknown from a trace alone."""

    schema_version: int = 1
    trace: str
    workload: str | None = None
    device: str | None = None
    settings: Settings | None = None
    """Every active lever."""
    summary: Summary
    against: ProfileComparison | None = None
    """Changes since the trace of `--against`."""


def main(arguments: argparse.Namespace) -> int:
    before = _summary_of(arguments.against) if arguments.against is not None else None
    if arguments.read is not None:
        if arguments.user_command or arguments.trace is not None or arguments.force:
            raise UsageError("--read trains nothing; valid beside it: --against, --json")
        _print_report(arguments.read, before, Snapshot(), as_json=arguments.json)
        return Exit.DONE
    training = training_of(arguments)
    path = _path(arguments, training.plan.workload)
    trial = ProfileTrial(arguments.steps, path)
    ended = measure(training, arguments, trial)
    code = trial.conclude(ended)
    if code == Exit.DONE:
        _print_report(path, before, ended.snapshot, as_json=arguments.json)
        if not arguments.quiet:
            complain(f"the trace is {shown(path)}; ui.perfetto.dev opens it too")
    return code


def _summary_of(path: Path) -> Summary:
    return summarise(read(path))


def _print_report(path: Path, before: Summary | None, trained: Snapshot, *, as_json: bool) -> None:
    summary = _summary_of(path)
    change = None if before is None else compare(before, summary)
    device = trained.device
    report = ProfileReport(
        trace=plain(str(path)),
        workload=trained.workload or None,
        device=device.name if device else None,
        settings=trained.settings if trained.workload else None,
        summary=summary,
        against=change,
    )
    more = [] if change is None else ["", *comparison_lines(change)]
    say_found(report, "\n".join([*summary_lines(summary), *more]), as_json=as_json)


class ProfileTrial(Course):
    """One profile of a training, requested after the warm-up."""

    patience_s = PATIENCE_S

    def __init__(self, steps: int, path: Path) -> None:
        self._steps, self._path = steps, path

    def stages(self) -> Iterator[bool]:
        while not (rows := self.news.snapshot.results) or not rows[-1].steps:
            yield False
        yield from self.profile(self._steps, self._path)

    def conclude(self, ended: Ended) -> int:
        """Without a profile, print why."""
        self.is_over()  # look at the last snapshot
        if self.is_done and not self.failure and self.news.snapshot.profile is not None:
            return Exit.DONE
        return ended.without("profile", self.failure, Exit.REFUSED if self.failure else Exit.FAILED)


def _path(arguments: argparse.Namespace, name: str) -> Path:
    path: Path = arguments.trace or Path(f"{Path(name).stem}.trace.json")
    if path.suffix == ".gz":
        raise UsageError(f"--trace {shown(path)} is not valid; valid: a name without .gz")
    text_of(path.absolute())
    if not path.parent.is_dir():
        raise UsageError(f"--trace {shown(path)}: the folder {shown(path.parent)} does not exist")
    if path.exists() and not path.is_file():
        raise UsageError(f"--trace {shown(path)} is not valid; valid: a file")
    if not arguments.force:
        refuse_existing(path)
    try:
        with TemporaryFile(dir=path.parent):
            return path
    except OSError as error:
        where = f"the folder {shown(path.parent)} cannot be written to"
        raise UsageError(f"--trace {shown(path)}: {where}: {reason(error)}") from error
