"""`gpudash completion SHELL`: a few lines of shell that call `gpudash __complete` at each TAB.

No library is used: shtab lacks fish and values that depend on other words, and importing
argcomplete takes too long for a completion.
"""

import argparse

from gpudash.cli.parser import Parser, Verb
from gpudash.cli.stdout import say
from gpudash.errors import Exit

SHELLS = ("bash", "zsh", "fish")
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
SCRIPTS = {"bash": BASH.lstrip(), "zsh": ZSH, "fish": FISH.lstrip()}


def add_arguments(parser: Parser) -> None:
    """Add the arguments of `completion`."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


VERB = Verb(
    name="completion",
    summary="A shell script that completes verbs, options, levers and their values.",
    add_arguments=add_arguments,
    examples=(
        ("gpudash completion bash >> ~/.bashrc", "for every new shell; zsh has ~/.zshrc"),
        ("gpudash completion fish >> ~/.config/fish/config.fish", "the same for fish"),
    ),
)


def main(arguments: argparse.Namespace) -> int:
    """Print the script for a shell."""
    say(SCRIPTS[arguments.shell], end="")
    return Exit.DONE
