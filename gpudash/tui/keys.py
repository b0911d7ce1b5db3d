"""Every key of the dashboard, once: bindings, footer, help and palette are made from this."""

import msgspec

from gpudash.protocol import Ability
from gpudash.snapshot import Snapshot

RECORDED = "a recording is shown"
WHY_NOT: dict[Ability, str] = {
    "levers": "the levers of this run cannot be changed",
    "pause": "this run cannot be paused",
    "restart": "this run cannot be restarted",
    "blocks": "no A/B can be run here",
    "record": "this run cannot be recorded",
    "profile": "this run cannot be profiled",
}
"""What is said where a run's source cannot do it."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key and what it does."""

    keys: str
    """Textual's names, comma-separated."""
    shown: str
    """As it stands in footer and help."""
    action: str
    """Action of the app."""
    label: str
    """One word for the footer; empty keeps it out of there."""
    help: str
    """For help and palette."""
    rank: int = 9
    """The footer of a narrow terminal drops the highest first."""
    palette: bool = True
    needs: Ability | None = None
    """What the run's source must be able to do."""

    def why_not(self, snapshot: Snapshot) -> str | None:
        """Return why it does nothing in this run, or None."""
        return self.needs and why_not(self.needs, snapshot)


def why_not(ability: Ability, snapshot: Snapshot) -> str | None:
    """Return why this cannot be asked of the run; None where it can."""
    if ability in snapshot.can:
        return None
    return RECORDED if snapshot.playback else WHY_NOT[ability]


KEYS = (
    Key(
        keys="p",
        shown="p",
        action="pipelining",
        needs="levers",
        label="pipeline",
        help="Pipelining on or off, from the next step",
        rank=1,
    ),
    Key(
        keys="plus,equals_sign",
        shown="+",
        action="batch(1)",
        needs="levers",
        label="batch",
        help="Batch size up to the next power of two (= does it too)",
        rank=4,
    ),
    Key(
        keys="minus",
        shown="-",
        action="batch(-1)",
        needs="levers",
        label="batch",
        help="Batch size down to the next power of two",
        rank=4,
    ),
    Key(
        keys="w",
        shown="w",
        action="workload",
        needs="restart",
        label="workload",
        help="Choose another workload and start it",
        rank=7,
    ),
    Key(
        keys="space",
        shown="space",
        action="pause",
        needs="pause",
        label="pause",
        help="Pause the training between two steps, or go on",
        rank=2,
    ),
    Key(
        keys="n",
        shown="n",
        action="new_row",
        label="row",
        help="New row of the results table from here",
        rank=8,
    ),
    Key(
        keys="r",
        shown="r",
        action="record",
        needs="record",
        label="record",
        help="Record to a CSV file, or complete the file",
        rank=2,
    ),
    Key(
        keys="R",
        shown="R",
        action="restart",
        needs="restart",
        label="restart",
        help="Restart the training with the levers as they are shown",
        rank=6,
    ),
    Key(
        keys="a",
        shown="a",
        action="compare",
        needs="blocks",
        label="A/B",
        help="A/B of the lever under the cursor, or end it",
        rank=6,
    ),
    Key(
        keys="g",
        shown="g",
        action="device",
        label="device",
        help="Every value of the device, or why none is read",
        rank=9,
    ),
    Key(
        keys="escape",
        shown="esc",
        action="close_panel",
        label="",
        help="Close the device panel and the A/B panel",
    ),
    Key(
        keys="v",
        shown="v",
        action="view",
        label="view",
        help="On a small terminal: results, levers or log",
        rank=5,
    ),
    Key(
        keys="tab,down",
        shown="tab ↓",
        action="lever(1)",
        label="",
        help="Next lever",
        palette=False,
    ),
    Key(
        keys="shift+tab,up",
        shown="⇧tab ↑",
        action="lever(-1)",
        label="",
        help="Previous lever",
        palette=False,
    ),
    Key(
        keys="enter",
        shown="enter",
        action="edit",
        needs="levers",
        label="",
        help="Change the lever under the cursor",
    ),
    Key(
        keys="right",
        shown="→",
        action="nudge(1)",
        needs="levers",
        label="",
        help="Lever under the cursor: next value",
    ),
    Key(
        keys="left",
        shown="←",
        action="nudge(-1)",
        needs="levers",
        label="",
        help="Lever under the cursor: previous value",
    ),
    Key(
        keys="pageup",
        shown="pgup",
        action="scroll(-1)",
        label="",
        help="Scroll the log up (the results, where they stand alone)",
        palette=False,
    ),
    Key(
        keys="pagedown",
        shown="pgdn",
        action="scroll(1)",
        label="",
        help="Scroll down; at its end the log follows again",
        palette=False,
    ),
    Key(
        keys="question_mark",
        shown="?",
        action="help",
        label="help",
        help="Every key",
        rank=0,
    ),
    Key(
        keys="ctrl+p",
        shown="^p",
        action="command_palette",
        label="menu",
        help="Every action, and the colour themes",
        rank=3,
        palette=False,
    ),
    Key(
        keys="q",
        shown="q",
        action="leave",
        label="quit",
        help="Quit; asks if a recording would be cut short",
        rank=0,
    ),
    Key(
        keys="ctrl+c",
        shown="^c",
        action="leave_now",
        label="",
        help="Quit at once; a recording is completed first",
        palette=False,
    ),
)

PLAYER_KEYS = (
    Key(
        keys="space",
        shown="space",
        action="play",
        label="play",
        help="Play the recording, or hold it",
        rank=1,
    ),
    Key(
        keys="left",
        shown="←",
        action="seek(-5)",
        label="back",
        help="Back by 5 s",
        rank=2,
    ),
    Key(
        keys="right",
        shown="→",
        action="seek(5)",
        label="on",
        help="Forward by 5 s",
        rank=2,
    ),
    Key(
        keys="less_than_sign",
        shown="<",
        action="speed(-1)",
        label="slower",
        help="Play at half the speed",
        rank=3,
    ),
    Key(
        keys="greater_than_sign",
        shown=">",
        action="speed(1)",
        label="faster",
        help="Play at twice the speed",
        rank=3,
    ),
    Key(
        keys="comma",
        shown=",",
        action="seek_marker(-1)",
        label="",
        help="Back to the marker before",
    ),
    Key(
        keys="full_stop",
        shown=".",
        action="seek_marker(1)",
        label="marker",
        help="Forward to the next marker",
        rank=3,
    ),
    Key(
        keys="end",
        shown="End",
        action="seek_end",
        label="newest",
        help="To the end; follow a recording that is still being written",
        rank=2,
    ),
)
"""What plays a recording."""
REPLAY_KEYS = (
    *PLAYER_KEYS,
    *(key for key in KEYS if key.keys not in {one.keys for one in PLAYER_KEYS}),
)
"""Every key of a replay: those that play it have no other meaning there."""


def keys_of(snapshot: Snapshot) -> tuple[Key, ...]:
    """Return the keys of the dashboard that shows this."""
    return REPLAY_KEYS if snapshot.playback else KEYS
