"""`gpudash completion SHELL`: a few lines of shell that call `gpudash __complete` at each TAB.

The hidden `gpudash __complete WORDS…` prints completions of the last word, from the parsers and the
catalogue. The first line of its output is `words`, `open` (no space follows, as more may be added)
or `files` (the shell completes a file's name). Each other line is a completion, and after a tab its
description.

No library is used: shtab lacks fish and values that depend on other words, and importing
argcomplete takes too long for a completion.
"""

import argparse
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from gpudash.cli.options import DEVICES, Destination, FileName
from gpudash.cli.parser import Parser, help_of
from gpudash.cli.stdout import say
from gpudash.cli.verbs import SUMMARIES, VERBS, load
from gpudash.workload_levers import levers_of
from workloads import CATALOGUE, DEFAULT
from workloads.levers import Lever

BASH = r"""
_gpudash() {
    local line=${COMP_LINE:0:COMP_POINT} words reply word done
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    mapfile -t reply < <("$1" __complete "${words[@]:1}" 2>/dev/null)
    word=${words[-1]}
    case ${reply[0]} in
        files)
            compopt -o filenames
            [[ $word == --*=* ]] && word=${word#*=}
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
            return ;;
        open) compopt -o nospace ;;
    esac
    done=${word%"${word##*[=:]}"}  # readline has what stands before these already
    COMPREPLY=("${reply[@]:1}")
    COMPREPLY=("${COMPREPLY[@]%%$'\t'*}")
    COMPREPLY=("${COMPREPLY[@]#"$done"}")
}
complete -F _gpudash gpudash
"""
ZSH = r"""#compdef gpudash
_gpudash() {
    local -a reply found shown
    local line
    reply=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ ${reply[1]} == files ]]; then
        [[ $PREFIX == --*=* ]] && compset -P '*='
        _files
        return
    fi
    for line in "${(@)reply[2,-1]}"; do
        found+=("${line%%$'\t'*}")
        shown+=("${line%%$'\t'*}  ${line#*$'\t'}")
    done
    if [[ ${reply[1]} == open ]]; then
        compadd -l -S '' -d shown -a found
    else
        compadd -l -d shown -a found
    fi
}
if [[ ${funcstack[1]} == _gpudash ]]; then _gpudash "$@"; else compdef _gpudash gpudash; fi
"""
FISH = r"""
function __gpudash_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l reply ($words[1] __complete $words[2..-1] "$current" 2>/dev/null)
    if test "$reply[1]" = files
        __fish_complete_path (string replace -r -- '^--[^=]*=' '' "$current")
    else
        printf '%s\n' $reply[2..-1]
    end
end
complete -c gpudash -f -a '(__gpudash_complete)'
"""
Words = Iterable[tuple[str, str]]
"""Completions, each with its description."""
LISTS = ("NAME=A,B", "LEVER=A,B,…")
"""Metavars of levers with several values."""
OWN = "FILE.py[:NAME]"
"""Metavar of a workload of a user's own."""

GPUS = "/proc/driver/nvidia/gpus"
"""Where the NVIDIA driver has a folder for each GPU."""

SCRIPTS = {"bash": BASH.lstrip(), "zsh": ZSH, "fish": FISH.lstrip()}


def main(arguments: argparse.Namespace) -> None:
    say(SCRIPTS[arguments.shell], end="")


# ── at each TAB ─────────────────────────────────────────────────────────────────────────


def answer(words: Sequence[str]) -> None:
    how, found = complete(words)
    say("\n".join([how, *(f"{word}\t{what}" for word, what in found)]))


def complete(words: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """Return the kind (`words`, `open`, `files`) and the completions."""
    *before, current = words or [""]
    named = bool(before) and before[0] in VERBS
    verb = load(before[0] if named else "")
    parser, before = verb.parser(), before[1:] if named else before
    if parser.split_words([*before, current])[1]:  # the word is in the user's command
        return "files", []
    line = _Words(parser, before)
    option, equals, value = current.partition("=")
    action, head = line.awaiting, ""
    if action is None and current.startswith("-"):
        action = line.option(option) if equals else None
        if action is None:
            return "words", _beginning(current, line.options())
        head, current = f"{option}=", value
    if action is None:
        action = line.positional
    if action is None:
        return "words", []
    if isinstance(action.type, FileName) or action.metavar == OWN:
        return "files", []
    found = _beginning(current, line.values(action, current))
    if not found and action is line.positional and verb.user_command:
        return "files", []  # a script may stand where a workload does
    if not before and not head:
        found += _beginning(current, SUMMARIES)
    is_open = action.metavar in LISTS or all(word.endswith(("=", ":")) for word, _ in found)
    return "open" if is_open else "words", [(head + word, what) for word, what in found]


def _beginning(start: str, words: Words) -> list[tuple[str, str]]:
    return [(word, what) for word, what in words if word.startswith(start)]


class _Words:
    """The words before the one that is being completed, as the parser understands them."""

    def __init__(self, parser: Parser, words: Sequence[str]) -> None:
        self._parser = parser
        self.awaiting: argparse.Action | None = None
        """The option whose value comes next."""
        self._given: dict[str, str] = {}
        """The values given so far, by destination."""
        places = [action for action in parser.actions if not action.option_strings]
        for word in words:
            if self.awaiting is not None:
                self._given[self.awaiting.dest], self.awaiting = word, None
            elif word.startswith("-"):
                name, equals, value = word.partition("=")
                action = self.option(name)
                if action is not None and action.nargs != 0:
                    self.awaiting = None if equals else action
                    self._given[action.dest] = value
            elif places:
                self._given[places.pop(0).dest] = word
        self.positional = places[0] if places else None

    def option(self, name: str) -> argparse.Action | None:
        return next((one for one in self._parser.actions if name in one.option_strings), None)

    def options(self) -> Words:
        for action in self._parser.actions:
            if action.option_strings:
                yield action.option_strings[-1], help_of(action)

    def values(self, action: argparse.Action, current: str) -> Words:
        if action.choices is not None:
            yield from ((str(choice), "") for choice in action.choices)
        elif isinstance(action.type, Destination):
            for name, (target, what) in action.type.valid.items():
                yield f"{name}:" if target else name, what
        elif action.metavar in ("LEVER=VALUE", "LEVER[=VALUE]"):
            yield from self._settings(current, several=False)
        elif action.metavar in LISTS:
            yield from self._settings(current, several=True)
        elif offers := OFFERS.get(str(action.metavar)):
            yield from offers(current)

    def _settings(self, current: str, *, several: bool) -> Words:
        name, equals, values = current.partition("=")
        if not equals:
            yield from ((f"{lever.name}=", lever.summary) for lever in self._levers())
            return
        *known, _ = values.split(",") if several else [values]
        head = "".join([name, "=", *(f"{value}," for value in known)])
        for lever in self._levers():
            if lever.name == name:
                others = (value for value in _values(lever) if value not in known)
                yield from ((head + value, _mark(lever, value)) for value in others)

    def _levers(self) -> tuple[Lever, ...]:
        name = self._given.get("workload", "")
        if preset := self._given.get("preset"):
            from gpudash.compare.sweep.presets import ON_GPU  # only for a sweep

            name = ON_GPU[preset].workload if preset in ON_GPU else name
        return levers_of(CATALOGUE.get(name, CATALOGUE[DEFAULT]))


def _values(lever: Lever) -> tuple[str, ...]:
    """Return the values of a lever; of a number, the default and its neighbours."""
    default = lever.default_text
    near = (lever.step(default, -1), default, lever.step(default, 1))
    return lever.values or tuple(dict.fromkeys(near))


def _mark(lever: Lever, value: str) -> str:
    return "default" if value == lever.default_text else ""


def _versions(current: str) -> Words:
    from pathlib import Path  # all of these only for versions

    from gpudash.errors import UsageError
    from gpudash.format import plain
    from gpudash.run.user_repository import versions

    head = current[: current.rfind(",") + 1]
    with suppress(OSError, UsageError):  # no repository, or no Git
        yield from ((head + name, plain(told)) for name, told in versions(Path.cwd()))


def _presets(_current: str) -> Words:
    from gpudash.compare.sweep.presets import ON_GPU  # only for a sweep

    yield from ((name, preset.workload) for name, preset in ON_GPU.items())


def _devices(_current: str) -> Words:
    try:
        count = len(os.listdir(GPUS))  # noqa: PTH208  # importing pathlib is slow
    except OSError:
        count = 0
    yield from ((name, "") for name in (*DEVICES[:-1], *(f"cuda:{one}" for one in range(count))))


OFFERS: Mapping[str, Callable[[str], Words]] = {
    "WORKLOAD": lambda _: ((entry.name, entry.summary) for entry in CATALOGUE.values()),
    "VERB": lambda _: SUMMARIES,
    "DEVICE": _devices,
    "PRESET": _presets,
    **dict.fromkeys(("A,B", "BASE", "NEW"), _versions),
}
"""Values by metavar, of the word so far."""
