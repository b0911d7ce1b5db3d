"""Start gpudash: before it imports anything, it sees to it that its own environment comes first."""

from gpudash.imports import prefer_own_modules


def main() -> int:
    prefer_own_modules()
    from gpudash.cli.main import main

    return main()
