"""`gpudash run`: run the user's command, on the dashboard or with its streams untouched."""

import argparse
from contextlib import suppress
from pathlib import Path

from gpudash.addresses import to_connect, to_listen
from gpudash.cli.dashboard import (
    ScreenResult,
    begin_destinations,
    check_record_options,
    opening,
    show,
)
from gpudash.cli.headless_script import (
    HeadlessScript,
    in_shell,
    own_failures,
    plan_of,
    remove,
)
from gpudash.cli.stdout import complain, on_terminal, say
from gpudash.errors import Exit, UsageError
from gpudash.protocol.commands import Plan
from gpudash.run.command_process import keep
from gpudash.run.job import TrainingJob
from gpudash.run.node_protocol import VARIABLE, given_token, new_token
from gpudash.run.nodes import Nodes
from gpudash.run.relay import Relay
from gpudash.run.runs import begin
from gpudash.run.source import Source
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
    if not headless:
        return _on_screen(command, arguments, nodes)
    gives_way = nodes is None and record is None and not arguments.to
    script = HeadlessScript(command, nodes=nodes, gives_way=gives_way)
    if gives_way and not (asked or arguments.quiet):
        complain(f"gpudash: no terminal here; {look_in()} opens the dashboard over {command.name}")
    with script.session(arguments) as session:
        if record is not None:
            session.begin_sink(
                "recording", record, force=arguments.force, every_step=arguments.every_step
            )
        begin_destinations(session, arguments)
        script.follow(session)
        failures = own_failures(session)
        if not arguments.quiet:
            for line in script.summary(session, record, arguments.price):
                complain(line)
        elif failures:
            complain(f"gpudash: {'; '.join(failures)}")
    return script.end()


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
            with suppress(EOFError):
                input("Enter opens the dashboard ")
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
    script = HeadlessScript(command)
    script.run_for(relay)
    return script.end()


def _on_screen(command: UserCommand, arguments: argparse.Namespace, nodes: Nodes | None) -> int:
    plan, place = plan_of(command), begin()
    sources: list[TrainingJob] = []

    def start(_plan: Plan) -> Source:
        held = keep(command, place)
        sources.append(TrainingJob(command.name, held, place, nodes=nodes))
        return sources[-1]

    try:
        with opening(plan, arguments, arguments.record, start_source=start) as open_session:
            left = show(open_session, plan, arguments)
            for failure in own_failures(open_session()):
                complain(f"gpudash: {failure}")
    finally:
        if not sources:
            remove(place)
    return say_farewell(sources[-1], left) if sources else left.code


def say_farewell(source: TrainingJob, left: ScreenResult) -> int:
    if not source.is_over:
        again, how = ATTACH, ""
        if source.prints_to:
            again, how = look_in(), f", and prints to {source.prints_to}"
        elif in_slurm_step():
            how = " until this Slurm step ends, and with it all that it started"
        left.print_receipt(f"{again}, as {source.name} runs on{how}")
        return left.code
    if source.last_lines:
        say("\n".join(source.last_lines[-LAST_LINES:]))
    left.print_receipt()
    if source.is_lost:
        complain(f"gpudash: {source.how_it_ended()}")
        return Exit.FAILED
    return left.code if source.exit_code is None else in_shell(source.exit_code)
