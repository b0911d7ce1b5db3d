"""`gpudash ab --card`: check the file before the training starts, and write the verdict into it."""

import argparse
import os
from pathlib import Path

from msgspec.structs import replace

from gpudash.cli.stdout import complain
from gpudash.errors import UsageError
from gpudash.present.card import FORMS, card_of
from gpudash.present.wording import verdict_command
from gpudash.protocol.commands import Plan
from gpudash.protocol.session import ComparisonShown
from gpudash.recording.files import created, refuse_existing, shown
from gpudash.run.user_command import understand
from gpudash.snapshot import Snapshot


def check_card(arguments: argparse.Namespace) -> None:
    """Raise UsageError or RecordingError if the card could not be written, before all else."""
    path: Path | None = arguments.card
    if path is None:
        if arguments.force:
            raise UsageError("--force goes with --card FILE")
        return
    if path.suffix not in FORMS:
        ends = " or ".join(FORMS)
        raise UsageError(f"cannot write a card to {shown(path)}: its name has to end in {ends}")
    if arguments.no_instruments:
        raise UsageError("--card goes with --lever: it shows what a lever brings")
    if not os.access(path.parent, os.W_OK):
        folder = f"{shown(path.parent)} is no folder that can be written to"
        raise UsageError(f"cannot write a card to {shown(path)}: {folder}")
    if not arguments.force or path.is_dir():
        refuse_existing(path)


def write_card(
    found: ComparisonShown, snapshot: Snapshot, arguments: argparse.Namespace, starts: int = 1
) -> None:
    """Do nothing if no card is asked for. Raises RecordingError."""
    path: Path | None = arguments.card
    if path is None:
        return
    others = {name: value for name, value in snapshot.settings.items() if name != found.lever}
    known = replace(found, settings=others)
    plan = Plan(
        workload=snapshot.workload,
        settings={},
        command=understand(arguments.user_command).argv if arguments.user_command else (),
        nproc=arguments.nproc or 1,
        device=arguments.device,
    )
    command = verdict_command(known, snapshot.workload, plan, starts=arguments.starts)
    card = card_of(known, snapshot, command, starts)
    if card is None:
        complain("gpudash: no card: the verdict has no interval")
        return
    with created(path, force=arguments.force) as file:
        file.append(FORMS[path.suffix](card).encode())
