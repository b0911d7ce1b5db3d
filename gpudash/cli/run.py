"""`gpudash run`: run the user's command, on the dashboard or with its streams untouched."""

import argparse
from contextlib import closing
from pathlib import Path

from gpudash.addresses import to_connect, to_listen
from gpudash.cli.dashboard import ScreenResult, check_record_options, opening, show
from gpudash.cli.stdout import ask, complain, on_terminal, say
from gpudash.cli.user_training import UserTraining, in_shell, own_failures
from gpudash.errors import Exit, UsageError
from gpudash.run.command_process import Foreground, keep
from gpudash.run.job import TrainingJob
from gpudash.run.node_protocol import VARIABLE, given_token, new_token
from gpudash.run.nodes import Nodes
from gpudash.run.relay import Relay
from gpudash.run.user_command import ATTACH, UserCommand, in_slurm_step, look_in, understand

LAST_LINES = 20
"""Lines of output left on the terminal when the dashboard closes after the command's end."""


def main(arguments: argparse.Namespace) -> int:
    command = understand(arguments.user_command, arguments.python)
    record: Path | None = arguments.record
    recorded = record is not None and not arguments.live
    asked = arguments.watch or arguments.connect is not None or recorded
    headless = asked or not on_terminal()
    _check(arguments, headless=headless)
    if arguments.connect is not None:
        return _relayed(command, arguments)
    nodes = listen(arguments, headless=headless)
    gives_way = headless and nodes is None and record is None and not arguments.to
    hold = Foreground if headless else keep
    training = UserTraining(command, hold, nodes=nodes, gives_way=gives_way)
    if gives_way and not (asked or arguments.quiet):
        complain(f"gpudash: no terminal here; {look_in()} opens the dashboard over {command.name}")
    with (
        closing(training),
        opening(training.plan, arguments, record, **training.source) as open_session,
    ):
        if headless:
            training.follow(open_session())
        else:
            left = show(open_session, training.plan, arguments)
        lines = own_failures(open_session())
        if headless:
            lines = (
                ["; ".join(lines)] if arguments.quiet else training.summary(open_session(), record)
            )
        for line in filter(None, lines):
            complain(f"gpudash: {line}")
    if headless:
        return training.end()
    return left.code if training.job is None else say_farewell(training.job, left)


def _check(arguments: argparse.Namespace, *, headless: bool) -> None:
    if arguments.record == Path("-"):
        raise UsageError("--record - is not valid: standard output is the script's own")
    check_record_options(arguments, arguments.record)
    if arguments.quiet and not headless:
        raise UsageError("--quiet goes with --record FILE.csv or --watch")
    if arguments.listen is not None and arguments.connect is not None:
        raise UsageError("--listen and --connect do not go together: one gpudash listens")
    if arguments.to and arguments.connect is not None:
        raise UsageError("--to goes with the gpudash that listens, not with --connect")


def listen(arguments: argparse.Namespace, *, headless: bool) -> Nodes | None:
    """Return the listening end for other nodes, if requested; print a new token."""
    if arguments.listen is None:
        if arguments.token_file is not None:
            raise UsageError("--token-file goes with --listen or --connect")
        return None
    address = to_listen(arguments.listen)
    given = given_token(arguments.token_file)
    token = given or new_token()
    nodes = Nodes(address, token)
    if given is None:
        complain(f"gpudash listens on {nodes.address}; for the other nodes: {VARIABLE}={token}")
        if not headless:  # the screen would hide it
            ask("Enter opens the dashboard ")
    elif headless and not arguments.quiet:
        complain(f"gpudash listens on {nodes.address}")
    return nodes


def _relayed(command: UserCommand, arguments: argparse.Namespace) -> int:
    address = to_connect(arguments.connect)
    token = given_token(arguments.token_file)
    if token is None:
        raise UsageError(
            f"--connect needs the token of the gpudash that listens; valid: {VARIABLE} in the "
            "environment, or --token-file FILE"
        )
    relay = Relay(address, token, complain)
    relay.try_once()
    training = UserTraining(command)
    training.run_for(relay)
    return training.end()


def say_farewell(source: TrainingJob, left: ScreenResult) -> int:
    held = source.held
    if not held.over:
        again, how = ATTACH, ""
        if held.prints_to:
            again, how = look_in(), f", and prints to {held.prints_to}"
        elif in_slurm_step():
            how = " until this Slurm step ends, and with it all that it started"
        left.print_receipt(f"{again}, as {source.name} runs on{how}")
        return left.code
    if source.last_lines:
        say("\n".join(source.last_lines[-LAST_LINES:]))
    left.print_receipt()
    if held.lost:
        complain(f"gpudash: {source.how_it_ended()}")
        return Exit.FAILED
    return left.code if held.exit_code is None else in_shell(held.exit_code)
