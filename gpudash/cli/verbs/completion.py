"""`gpudash completion`."""

from gpudash.cli.parser import Parser, Verb

SHELLS = ("bash", "zsh", "fish")


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
    module="gpudash.cli.completion",
)
