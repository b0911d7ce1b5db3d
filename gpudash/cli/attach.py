"""`gpudash attach`: open the dashboard on a running command."""

import argparse
from collections.abc import Sequence
from contextlib import closing

from gpudash.cli.dashboard import opening, show
from gpudash.cli.run import listen, say_farewell
from gpudash.cli.stdout import on_terminal
from gpudash.errors import UsageError
from gpudash.format import plain
from gpudash.protocol.commands import Plan
from gpudash.rendezvous import FOLDER, folders
from gpudash.run.job import TrainingJob
from gpudash.run.runs import UserRun, check_folder, elsewhere, living


def main(arguments: argparse.Namespace) -> int:
    check_folder()
    run = choose(arguments.run, living())
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


def choose(word: str | None, runs: Sequence[UserRun]) -> UserRun:
    """Return the run with this name or process id, or the only possible one. Raises UsageError."""
    if not runs:
        raise UsageError(plain(_why_none()))
    asked = None if word is None else plain(word)  # as the name is
    found = [run for run in runs if asked in (str(run.facts.pid), run.facts.name)]
    if word is None:
        found = [run for run in runs if not run.has_other_terminal] or list(runs)
    if len(found) == 1:
        return found[0]
    lives = "; ".join(_described(run) for run in found or runs)
    if not found:
        raise UsageError(
            f"no command {asked!r} runs; valid: the name or process id of {lives}; {_elsewhere()}"
        )
    raise UsageError(f"{len(found)} commands run, one has to be named by its process id: {lives}")


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
