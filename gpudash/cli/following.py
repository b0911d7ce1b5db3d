"""The command to go on with after a verdict: what a program would type next."""

import argparse
import shlex
from collections.abc import Iterable, Iterator, Sequence

from gpudash.cli.keeping import word
from gpudash.cli.options import COMMAND_LINE
from gpudash.compare.paired_t import Estimate
from gpudash.compare.starts import STARTS
from gpudash.protocol.answer import Try
from gpudash.protocol.records import Settings
from gpudash.run.attempts import Attempt


def after_lever(found: Estimate, arguments: argparse.Namespace, *, holds: bool | None) -> str:
    """Keep what is faster and holds; measure again what is not sure; else ask for another."""
    verdict = word(found)
    if verdict == "faster" and holds is not False:
        name, _, values = arguments.lever.partition("=")
        script = [one for one in arguments.user_command if one.endswith(".py")][:1]
        patch = ["--patch", *script] if script else []
        return shlex.join(["gpudash", "show", f"{name}={values.split(',')[-1]}", *patch])
    if arguments.starts == 1 and (verdict == "inconclusive" or holds is False):
        return shlex.join(again(arguments, "--starts", str(STARTS), without=("--within",)))
    return shlex.join(why(arguments))


def after_programs(found: Estimate, arguments: argparse.Namespace, *, holds: bool | None) -> str:
    """Ask what limits the faster one; double the budget of what is not sure."""
    verdict = word(found)
    if verdict == "inconclusive" or holds is False:
        if arguments.starts is not None:
            return shlex.join(again(arguments, "--starts", str(2 * arguments.starts)))
        return more_time(arguments)
    if arguments.versions is not None:
        return shlex.join(why(arguments))
    command = arguments.b if verdict == "faster" else arguments.a
    return shlex.join(["gpudash", "why", "--", *shlex.split(command)])


def after_tune(best: Settings, arguments: argparse.Namespace, *, ran_out: bool) -> str:
    """Keep what is proven; go on where the budget ended; else ask what limits the training."""
    for name, value in best.items():
        return shlex.join(["gpudash", "show", f"{name}={value}"])
    if ran_out:
        return more_time(arguments)
    return shlex.join(why(arguments))


def untried(tries: Iterable[Try], attempts: Sequence[Attempt]) -> Iterator[Try]:
    """Yield those that were not tried; of a lever with a value found faster, that is kept first."""
    for one in tries:
        tried = [was for was in attempts if (was.lever, was.a) == (one.lever, one.before)]
        if not any(was.b == one.value or was.verdict == "faster" for was in tried):
            yield one


def more_time(arguments: argparse.Namespace) -> str:
    """Leave out files that a gate has written: they are not replaced."""
    files = ("--markdown", "--junit")
    return shlex.join(again(arguments, "--budget", f"{2 * arguments.budget:g}", without=files))


def again(
    arguments: argparse.Namespace, option: str, value: str, without: Sequence[str] = ()
) -> list[str]:
    """Return the words of this command with another value of an option."""
    words, of_user = arguments.command, arguments.user_command
    program, verb, *own = words[: len(words) - len(of_user)]
    return [program, verb, option, value, *_others(own, (option, *without)), *of_user]


def _others(words: Sequence[str], options: Sequence[str]) -> Iterator[str]:
    is_value = False
    for word_ in words:
        if not is_value and word_.partition("=")[0] not in options:
            yield word_
        is_value = word_ in options


def why(arguments: argparse.Namespace) -> list[str]:
    if arguments.user_command:
        return ["gpudash", "why", *arguments.user_command]
    workload = arguments.workload if "workload" in arguments.set_by else ""
    device = ["--device", arguments.device] * (arguments.set_by.get("device") == COMMAND_LINE)
    return ["gpudash", "why", *[workload] * bool(workload), *device]
