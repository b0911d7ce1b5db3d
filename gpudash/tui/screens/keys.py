"""The keys of a screen: Textual's bindings, and help and palette, which list their actions."""

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, get_args

from textual.binding import Binding, BindingType
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hits
from textual.system_commands import SystemCommandsProvider

from gpudash.format import plain
from gpudash.tui.availability import availability
from gpudash.tui.control import Control
from gpudash.tui.keys import GROUPS, Key, by_focus
from gpudash.tui.lever_control import Way
from gpudash.tui.screens.dialog import Dialog, framed, text

READING = """\
In the ledger ▓ is the least that an estimate foresees, ░ the
  most; ● is a proof, with its interval. [ ] is what is set.
`–` means not measured. ┊ marks a lever change, │ the cursor.
An axis that ends in ↑ leaves out rare, much higher values.
`off → on …` is asked for and not active yet.
Steps count when the device has finished them.
GPU busy only says that some kernel ran: it may read 100 %
while most of the GPU idles."""


def keys_text(keys: Sequence[Key], panel: str = "") -> str:
    own = [key for key in keys if panel in key.panels]
    groups = {"Here": own} if own else {}
    for group, title in GROUPS.items():
        groups[title] = [key for key in keys if key.group == group and key not in own]
    return "\n\n".join(
        "\n".join((title, *(f"{key.shown:>7}  {key.help}" for key in listed)))
        for title, listed in groups.items()
        if listed
    )


class Help(Dialog[None]):
    """Lists the keys; Escape, `?`, `q` and Enter close it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,q,enter", "dismiss(None)", "close", show=False)
    ]

    def __init__(self, keys: Sequence[Key], panel: str = "", reading: str = READING) -> None:
        content = text(keys_text(keys, panel)), text(reading, classes="dialog-hint")
        hint = "esc closes · every action is also in the palette"
        super().__init__(framed("gpudash · keys", *content, hint=hint, wide=True))


def bindings(keys: Iterable[Key]) -> list[BindingType]:
    return [
        Binding(
            key.keys,
            key.action if key.action.startswith("screen.") else f"app.{key.action}",
            key.help,
            show=False,
        )
        for key in keys
        if key.action != "leave_now"
    ]


def entries(control: Control, keys: Iterable[Key]) -> Iterator[tuple[str, str, str]]:
    """Yield (title, help, action) of the palette; without effect now, the help is the reason."""
    keys = by_focus([key for key in keys if key.palette], "")
    actions = ["levers", *(key.action for key in keys)]
    refused = availability(control.snapshot, control.requests, actions)
    would = {way: control.levers.label(way) for way in get_args(Way)}
    for key in keys:
        why = refused.get(key.action)
        what = f": {would[key.action]}" if would.get(key.action) else ""
        title = f"{GROUPS[key.group]} · {key.help}"
        yield title, f"key {key.shown}{what}" if why is None else why.reason, key.action
    for lever in control.levers.all if "levers" not in refused else ():
        if lever.refusal:
            continue
        now = control.levers.value(lever)
        for one in control.levers.values(lever):
            if one.value != now:
                title = f"Levers · {lever.name}={one.value}"
                yield title, lever.summary, f"set({lever.name!r}, {one.value!r})"


def as_markup(text: str) -> str:
    """Textual's `escape` misses some brackets."""
    return plain(text).replace("[", r"\[")


class InOrder(SystemCommandsProvider):
    """Lists the commands in their order; Textual sorts them by title."""

    async def discover(self) -> Hits:
        for title, help_, run, _ in self.app.get_system_commands(self.screen):
            yield DiscoveryHit(title, run, help=help_)


class Palette(CommandPalette):
    """Finds a command by its name."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pagedown", "turn('page_down')", "further", show=False),
        Binding("pageup", "turn('page_up')", "back", show=False),
    ]

    async def action_turn(self, way: str) -> None:
        """Go further or back by a page; a list that is not laid out yet has no pages."""
        if self.query_one(CommandList).scrollable_content_region:
            await self.run_action(f"command_list({way!r})")
