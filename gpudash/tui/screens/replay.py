"""The main screen of a replay: some keys control the player."""

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from gpudash.tui.arrangement import PanelChoice
from gpudash.tui.control import Control
from gpudash.tui.keys import REPLAY_KEYS
from gpudash.tui.screens.keys import bindings
from gpudash.tui.screens.main import MainScreen

if TYPE_CHECKING:  # the first frame does not wait for it
    from gpudash.run.replay import Player

MARKER_REACH_S = 1.0
"""Up to this far behind a marker, going back skips it."""


class ReplayScreen(MainScreen):
    """The main screen, with a scrubber."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(REPLAY_KEYS)

    def __init__(self, control: Control, player: "Player") -> None:
        super().__init__(control)
        self._player = player
        self._board.shown = PanelChoice(scrubber=True)

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield self._panels.scrubber

    def action_play(self) -> None:
        self._player.play_or_hold()

    def action_speed(self, direction: int) -> None:
        self._player.faster(direction)

    def action_seek(self, seconds: float) -> None:
        self._player.seek(self._player.position_s + seconds)

    def action_seek_to(self, position_s: float) -> None:
        self._player.seek(position_s)

    def action_seek_end(self) -> None:
        self._player.seek_end()

    def action_seek_marker(self, direction: int) -> None:
        """Go to the next marker (+1) or the previous one (-1), or else to the end or begin."""
        playback = self._control.snapshot.playback
        if playback is None:
            return
        # the marker that was just reached is not the previous one
        here_s = self._player.position_s + min(direction, 0) * MARKER_REACH_S
        places = (0.0, *(at_s for at_s, _ in playback.markers), playback.length_s)
        beyond = [at_s for at_s in places if (at_s - here_s) * direction > 0]
        if beyond:
            self._player.seek(min(beyond, key=lambda at_s: abs(at_s - here_s)))
