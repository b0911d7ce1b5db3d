"""Refuses commands, and what blocks and steps asked for: the dashboard is told why."""

import time
from collections.abc import Callable

from ..protocol.commands import AnyCommand, Blocks, Change, Profile
from ..protocol.envelope import Event
from ..protocol.records import Settings, replace
from ..protocol.training import BlocksEnded, RefusalKind, Refused
from .block_queue import BlockQueue


class Replies:
    """What the dashboard is told in answer; `send` sends any event."""

    def __init__(self, send: Callable[[Event], None], blocks: BlockQueue) -> None:
        self.send = send
        self._blocks = blocks

    def refuse(
        self,
        reason: str,
        command: AnyCommand | None = None,
        kind: RefusalKind = "bad_setting",
        failed: Settings | None = None,
    ) -> None:
        """Refuse a command; without one, refuse what the block in progress or a step asked for."""
        block = self._blocks.current
        if isinstance(command, Blocks):
            now_s, answers = time.monotonic(), (command.id,)
            self.send(BlocksEnded(at_s=now_s, answers=answers, run=command.run, why=reason))
            return
        if isinstance(command, Profile):
            kind = "no_profile"
        asked = command.settings if isinstance(command, Change) else {}
        if command is None and block is not None:
            asked = block.changes
        refused = Refused(kind=kind, changes=asked if failed is None else failed, reason=reason)
        if command is not None:
            refused = replace(refused, answers=(command.id,))
        elif block is not None:
            refused = replace(refused, run=self._blocks.run, block=block.number)
        self.send(refused)

    def end_blocks(self, why: str) -> None:
        """End the run of blocks, which answers its commands."""
        self.send(self._blocks.end(time.monotonic(), why))
