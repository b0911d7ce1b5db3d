"""`gpudash attach`: open the dashboard on a running command."""

import argparse
import time
from collections.abc import Sequence
from contextlib import closing

from gpudash.cli.dashboard import opening, show
from gpudash.cli.run import listen, say_farewell
from gpudash.cli.stdout import on_terminal, say
from gpudash.errors import UsageError
from gpudash.format import clock, plain
from gpudash.present.cells import fitted, width_of
from gpudash.protocol.commands import Plan
from gpudash.rendezvous import FOLDER, folders
from gpudash.run.job import TrainingJob
from gpudash.run.runs import UserRun, check_folder, elsewhere, swept


def main(arguments: argparse.Namespace) -> int:
    check_folder()
    living, ended = swept()
    run = choose(arguments.run, living, ended)
    if run is None or (arguments.run is None and not on_terminal()):
        say(as_text(living, ended, time.time()))
        return 0
    if not on_terminal():
        raise UsageError("the dashboard needs a terminal")
    nodes = listen(arguments, headless=False)
    held = run.open()
    source = TrainingJob(run.facts.name, held, run.place, nodes=nodes)
    plan = Plan(workload=source.name, settings={}, command=run.facts.command)
    source.joined = True
    with (
        closing(source),
        opening(plan, arguments, start_source=lambda _plan: source) as open_session,
    ):
        left = show(open_session, plan, arguments)
    return say_farewell(source, left)


def choose(
    word: str | None, runs: Sequence[UserRun], ended: Sequence[UserRun] = ()
) -> UserRun | None:
    """Return the run with this name or process id, or the only possible one.

    None without a word where several are possible. Raises UsageError.
    """
    asked = None if word is None else plain(word)  # as the name is
    over = [_described(run) for run in ended if asked in (None, str(run.facts.pid), run.facts.name)]
    if not runs:
        raise UsageError("; ".join([*(f"{one} has ended" for one in over), plain(_why_none())]))
    if word is None:
        found = [run for run in runs if not run.has_other_terminal] or list(runs)
        return found[0] if len(found) == 1 else None
    found = [run for run in runs if asked in (str(run.facts.pid), run.facts.name)]
    if len(found) == 1:
        return found[0]
    lives = "; ".join(_described(run) for run in found or runs)
    if not found:
        why = f"{over[-1]} has ended" if over else f"no command {asked!r} runs"
        raise UsageError(f"{why}; valid: the name or process id of {lives}; {_elsewhere()}")
    raise UsageError(f"{len(found)} commands run, one has to be named by its process id: {lives}")


def as_text(living: Sequence[UserRun], ended: Sequence[UserRun], now_s: float) -> str:
    """Return a table of the runs, and how the dashboard of one is opened."""

    def row(run: UserRun) -> tuple[str, ...]:
        facts = run.facts
        begun = time.strftime("%d %b %H:%M", time.localtime(facts.started_s))
        lasts = clock(now_s - facts.started_s) if run.trains else "has ended"
        return str(facts.pid), plain(facts.name), begun, lasts, plain(facts.cwd)

    rows = [("process", "name", "since", "for", "directory"), *map(row, (*living, *ended))]
    columns = zip(*rows, strict=True)
    widths = [max(width_of(((text, ""),)) for text in column) + 2 for column in columns]
    lines = ["".join(map(fitted, one, widths)).rstrip() for one in rows]
    return "\n".join([*lines, "gpudash attach PROCESS opens the dashboard over one"])


def _why_none() -> str:
    if others := elsewhere():
        where = "; ".join(f"{one.name} on {one.host}" for one in others)
        return (
            f"no command of gpudash run lives here; valid: gpudash attach where one does: {where}; "
            f"{_elsewhere()}"
        )
    return (
        "no command of gpudash run lives; valid: gpudash run SCRIPT.py starts one, so does "
        f"%load_ext gpudash in a notebook; {_elsewhere()}"
    )


def _elsewhere() -> str:
    looked_in = plain(" and ".join(map(str, folders())))
    return f"looked in {looked_in}, {FOLDER} names another folder"


def _described(run: UserRun) -> str:
    return plain(f"{run.facts.pid} ({run.facts.name} in {run.facts.cwd})")
