"""The table of the dashboard's keys, from which bindings, footer, help and palette are made."""

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Literal, TypeAlias

import msgspec

from gpudash.protocol.training import Ability

Group: TypeAlias = Literal["move", "run", "prove", "look", "keep", "app"]
GROUPS: dict[Group, str] = {
    "run": "Run",
    "prove": "Prove",
    "look": "Look",
    "move": "Move",
    "keep": "Keep",
    "app": "gpudash",
}
"""Groups of help and palette, in order."""
SHOWN = {
    "shift+tab": "⇧tab",
    "shift+left": "⇧←",
    "shift+right": "⇧→",
    "plus": "+",
    "minus": "-",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "enter": "⏎",
    "escape": "esc",
    "pageup": "pgup",
    "pagedown": "pgdn",
    "home": "Home",
    "end": "End",
    "comma": ",",
    "full_stop": ".",
    "slash": "/",
    "question_mark": "?",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "ctrl+p": "^p",
    "ctrl+c": "^c",
}
"""Labels of keys, by Textual's name, where the two differ."""


class Key(msgspec.Struct, frozen=True):
    """A key and its action."""

    keys: str
    """Textual's names, comma-separated; footer and help show the first."""
    action: str
    """An action of the app; with the prefix `screen.`, of the screen that has the key."""
    label: str
    """A word or two for the footer; a key without a label is not shown there."""
    help: str
    """Text for help and palette."""
    group: Group = "run"
    rank: int = 9
    """A narrow footer leaves out the highest rank first."""
    palette: bool = True
    needs: Ability | None = None
    """The request that the run's source must accept."""
    lever: str = ""
    """The lever that the key changes, if it is always the same."""
    panels: tuple[str, ...] = ()
    """Panels with whose focus the key comes first in the footer."""
    elsewhere: bool = True
    """Whether the footer shows the key also with the focus on other panels."""
    by_name: bool = False
    """Whether to show the key's name if its label is not ASCII."""

    @property
    def shown(self) -> str:
        first = self.keys.partition(",")[0]
        sign = SHOWN.get(first, first)
        return first if self.by_name and not sign.isascii() else sign


PROFILED_STEPS = 10
"""Steps traced for a profile that a key requests."""
CHARTS = ("throughput", "activity", "step")
ENTERS = {
    "levers": ("edit", "values"),
    "history": ("use_row", "use it"),
    "ab": ("keep", "keep"),
    "output": ("type_line", "type"),
    "profile": ("timeline", "profile"),
    **dict.fromkeys(CHARTS, ("screen.zoom", "zoom")),
}
"""What Enter does with the focus on a panel or on a tab of the pane: its action, and its label."""
# a compact table: each entry takes as few lines as possible
# fmt: off
KEYS = (
    Key("p", "pipelining", "pipeline", "Pipelining on or off, from the next step", needs="levers",
        rank=2, lever="pipelined"),
    Key("plus,equals_sign", "batch(1)", "batch",
        "Batch size up to the next power of two (= does it too)", needs="levers", rank=3,
        lever="batch_size"),
    Key("minus", "batch(-1)", "batch", "Batch size down to the next power of two", needs="levers",
        rank=3, lever="batch_size"),
    Key("space", "pause", "pause", "Pause the training between two steps, or go on", needs="pause",
        rank=2),
    Key("u", "undo", "undo", "Undo the last lever change", needs="levers", rank=5),
    Key("U", "redo", "", "Redo the lever change that was undone", needs="levers"),
    Key("n", "new_row", "new row", "New row of the history from here", rank=8),
    Key("w", "workload", "workload", "Choose another workload and start it", needs="restart",
        rank=7),
    Key("R", "restart", "restart", "Restart the training with the levers as they are shown",
        needs="restart", rank=8),
    Key("a", "compare", "A/B", "A/B of the lever under the cursor, or end it", "prove",
        needs="blocks", rank=1),
    Key("x", "try_it", "try it", "A/B of the proposal, once other jobs end; sets what is proven",
        "prove", needs="blocks", rank=1),
    Key("T", "tune", "tune", "Tune: find the best levers, and prove them against the start",
        "prove", needs="blocks", rank=9),
    Key("e", "why", "why", "Why: a step without each of its parts", "prove", rank=1),
    Key("E", "prove", "prove", "Prove the answer: slow each part of a step in turns", "prove",
        needs="blocks", rank=9),
    Key("o", "go_back", "back", "Back to the A/B's first value", "prove", needs="levers",
        panels=("ab",), elsewhere=False, rank=5),
    Key("m", "more_pairs", "more pairs", "More pairs for the last A/B", "prove", needs="blocks",
        panels=("ab",), elsewhere=False, rank=5),
    Key("z", "screen.zoom", "zoom", "Give the focused panel all the room, or take it back", "look",
        panels=CHARTS, rank=4),
    Key("left_square_bracket", "screen.range(-1)", "range", "Charts: a shorter stretch of time",
        "look", panels=CHARTS, rank=6),
    Key("right_square_bracket", "screen.range(1)", "range", "Charts: a longer stretch of time",
        "look", panels=CHARTS, rank=6),
    Key("0", "screen.whole_run", "all", "Charts: the whole run", "look", panels=CHARTS,
        elsewhere=False, rank=6),
    Key("f", "screen.freeze", "freeze",
        "Charts: freeze them, or follow again; the training goes on", "look", panels=CHARTS,
        elsewhere=False, rank=6),
    Key("end", "screen.live", "live", "Charts: follow the run", "look", panels=CHARTS,
        elsewhere=False, rank=7),
    Key("comma", "screen.to_marker(-1)", "", "Cursor to the lever change before", "look"),
    Key("full_stop", "screen.to_marker(1)", "", "Cursor to the next lever change", "look"),
    Key("t", "timeline", "profile",
        f"The newest profile; the first one traces {PROFILED_STEPS} steps", "look",
        rank=1, needs="profile"),
    Key("d,g,6", "screen.device", "device", "Every value of the device, or why none is read",
        "look", rank=6),
    Key("v", "screen.view", "view", "The next of levers, history, A/B and log", "look", rank=7),
    Key("i", "origins", "", "Where each number comes from: formula, source, age, uncertainty",
        "look"),
    Key("M", "memory", "", "Who owns device memory, by line, over the next two steps", "look",
        needs="memory"),
    Key("tab", "screen.panel(1)", "panel", "Next panel", "move", rank=6, palette=False),
    Key("shift+tab", "screen.panel(-1)", "", "Previous panel", "move", palette=False),
    *(
        Key(str(number), f"screen.panel_number({number})", "", f"Panel {number}: {name}", "move",
            palette=False)
        for number, name in enumerate(
            ("levers", "rate", "GPU and host", "step time", "history, A/B, log"), 1
        )
    ),
    Key("down,j", "screen.move(0, 1)", "", "Next lever, row or line", "move", palette=False),
    Key("up,k", "screen.move(0, -1)", "", "Previous lever, row or line", "move", palette=False),
    Key("right,l", "screen.move(1, 0)", "", "Next value or tab; on a chart the cursor to the right",
        "move", palette=False),
    Key("left,h", "screen.move(-1, 0)", "",
        "Previous value or tab; on a chart the cursor to the left", "move", palette=False),
    Key("enter", "screen.enter", "values",
        "Choose a value; use a setting; set the A/B's second; type; zoom", "move",
        panels=("levers", "history", "ab", "output"), elsewhere=False, rank=3, palette=False),
    Key("pageup", "screen.scroll(-1)", "", "Scroll history or log up", "move", palette=False),
    Key("pagedown", "screen.scroll(1)", "", "Scroll down; at its end the log follows again", "move",
        palette=False),
    Key("slash", "find", "find", "Find a lever, a setting or a line of the log", "move", rank=8),
    Key("escape", "screen.leave_level", "",
        "One level back: wait, zoom, cursor, freeze; then to the levers", "move",
        palette=False),
    Key("r", "record", "record", "Record to a CSV file, or complete the file", "keep",
        needs="record", rank=4),
    Key("y", "copy", "copy", "Copy the verdict with its command, the setting or the lever", "keep",
        rank=8),
    Key("Y", "card", "card", "Write the last A/B as a card: a picture, and Markdown", "keep",
        panels=("ab",), elsewhere=False),
    Key("S", "new_starts", "new starts", "Copy a command: the last A/B again, in new starts",
        "keep", panels=("ab",), elsewhere=False),
    Key("c", "code", "code", "The lines of PyTorch that do the same in your own script", "keep",
        panels=("levers", "ab"), elsewhere=False, rank=6),
    Key("question_mark", "help", "help", "Every key, those of the focused panel first", "app",
        rank=0),
    Key("ctrl+p,colon", "command_palette", "menu",
        "Every action, every lever value, and the themes", "app", rank=0, palette=False),
    Key("q", "leave", "quit", "Quit; asks if a recording would be cut short, or your script runs",
        "app", rank=0),
    Key("ctrl+c", "leave_now", "", "Quit at once; your script is sent it first", "app",
        palette=False),
)

PLAYER_KEYS = (
    Key("space", "screen.play", "play", "Play the recording, or hold it", rank=1),
    Key("left", "screen.seek(-5)", "back", "Back by 5 s", rank=2),
    Key("right", "screen.seek(5)", "on", "Forward by 5 s", rank=2),
    Key("less_than_sign", "screen.speed(-1)", "slower", "Play at half the speed", rank=3),
    Key("greater_than_sign", "screen.speed(1)", "faster", "Play at twice the speed", rank=3),
    Key("comma", "screen.seek_marker(-1)", "", "Back to the marker before"),
    Key("full_stop", "screen.seek_marker(1)", "marker", "Forward to the next marker", rank=3),
    Key("end", "screen.seek_end", "newest",
        "To the end; follow a recording that is still being written", rank=2),
)
"""Keys that control a replay."""

TIMELINE_KEYS = (
    Key("right,l", "screen.cursor(1)", "", "Cursor to the right by a cell", "move"),
    Key("left,h", "screen.cursor(-1)", "", "Cursor to the left by a cell", "move"),
    Key("down,j", "screen.lane(1)", "", "Next lane; in a table down", "move"),
    Key("up,k", "screen.lane(-1)", "", "Previous lane; in a table up", "move"),
    Key("tab", "screen.event(1)", "event", "Next event of the lane", "move", rank=3),
    Key("shift+tab", "screen.event(-1)", "", "Previous event of the lane", "move"),
    Key("n", "screen.next(1)", "", "Next match of a search; without one the next event", "move"),
    Key("N", "screen.next(-1)", "", "Previous match, or event", "move"),
    Key("slash", "screen.find", "find", "Find kernels, or else operators, by a part of their name",
        "move", rank=3),
    Key("full_stop", "screen.step(1)", "step", "The next step", "move", rank=2),
    Key("comma", "screen.step(-1)", "", "The step before", "move"),
    Key("shift+right", "screen.pan(1)", "", "Pan to the right; dragging does too", "move"),
    Key("shift+left", "screen.pan(-1)", "", "Pan to the left", "move"),
    Key("home", "screen.end(-1)", "", "The begin of the trace, or of a table", "move"),
    Key("end", "screen.end(1)", "", "Its end", "move"),
    Key("pagedown", "screen.page(1)", "", "Down by a page", "move"),
    Key("pageup", "screen.page(-1)", "", "Up by a page", "move"),
    Key("left_square_bracket,plus,equals_sign", "screen.zoom(-1)", "zoom",
        "Show less time; the mouse wheel does too", "look", rank=2),
    Key("right_square_bracket,minus", "screen.zoom(1)", "", "Show more time", "look"),
    Key("0", "screen.whole", "all", "The whole trace", "look", rank=3),
    Key("z", "screen.zoom_to_event", "to event", "Zoom to the event under the cursor", "look",
        rank=4),
    Key("s", "screen.show('summary')", "summary", "The whole summary, or the lanes",
        "look", rank=1),
    Key("c", "screen.show('changes')", "changes", "What changed since the profile before", "look",
        rank=4),
    Key("x", "screen.try_it", "try it", "A/B of what the dashboard proposes", "prove",
        needs="blocks", rank=4),
    Key("T", "profile", "new", f"Trace {PROFILED_STEPS} steps anew", "keep", needs="profile",
        rank=2),
    Key("w", "screen.where", "where", "Where the trace is; copies its path", "keep", rank=4),
    Key("y", "screen.copy", "copy", "Copy what is under the cursor", "keep", rank=5),
    Key("question_mark", "screen.help", "help", "Every key of the profile", "app", rank=0),
    Key("ctrl+p,colon", "command_palette", "menu", "Every action", "app", rank=0, palette=False),
    Key("escape,q,t", "screen.leave", "back", "End a search; back to the dashboard", "app", rank=0,
        palette=False),
)
# fmt: on
"""Keys of the profile's screen."""


_PLAYED = {name for key in PLAYER_KEYS for name in key.keys.split(",")}
REPLAY_KEYS = PLAYER_KEYS + tuple(
    msgspec.structs.replace(key, keys=",".join(rest))
    for key in KEYS
    if (rest := [name for name in key.keys.split(",") if name not in _PLAYED])
)
"""The player's keys lose their other actions."""

ACTIVE: ContextVar[Iterable[Key]] = ContextVar("active", default=KEYS)
"""The keys of the running dashboard."""


def key_for(action: str) -> str:
    return next((key.shown for key in ACTIVE.get() if key.action == action), "")


FIRST = ("try_it", "compare", "screen.enter", "code", "why", "help")
"""Actions whose keys are the first in footer and palette, whatever has the focus."""


def by_focus(keys: Iterable[Key], focus: str) -> list[Key]:
    """Put those that are always first before those of the focused panel."""
    places = {action: place for place, action in enumerate(FIRST)}
    return sorted(
        keys, key=lambda key: (places.get(key.action, len(FIRST)), focus not in key.panels)
    )
