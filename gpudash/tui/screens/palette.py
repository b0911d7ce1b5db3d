"""The palette: its entries, which are every lever value and every key's action, and its screen."""

from collections.abc import Iterable, Iterator
from typing import ClassVar, NamedTuple, get_args

from textual.binding import Binding, BindingType
from textual.command import CommandList, CommandPalette

from gpudash.format import plain
from gpudash.offers import refusal
from gpudash.tui.control import Control
from gpudash.tui.keys import GROUPS, Key
from gpudash.tui.lever_control import Way


class Entry(NamedTuple):
    """A line of the palette, and its action."""

    title: str
    help: str
    action: str


def entries(control: Control, keys: Iterable[Key]) -> Iterator[Entry]:
    """Yield the entries; one without effect now has the reason as its help."""
    why_fixed = control.levers.why_fixed
    for lever in control.levers.all if why_fixed is None else ():
        if refusal(lever.name, control.snapshot.levers):
            continue
        now = control.levers.value(lever)
        for one in control.levers.values(lever):
            if one.value != now:
                title = f"Levers · {lever.name}={one.value}"
                yield _entry(title, lever.summary, f"set({lever.name!r}, {one.value!r})")
    would = {way: control.levers.label(way) for way in get_args(Way)}
    for key in keys:
        if key.palette:
            what = f": {would[key.action]}" if would.get(key.action) else ""
            reason = key.why_not(control.snapshot) or (why_fixed if key.moves_levers else None)
            title = f"{GROUPS[key.group]} · {key.help}"
            yield _entry(title, reason or f"key {key.shown}{what}", key.action)


def _entry(title: str, help_: str, action: str) -> Entry:
    return Entry(_as_markup(title), _as_markup(help_), action)


def _as_markup(text: str) -> str:
    """Return the text escaped for the palette; Textual's `escape` misses some brackets."""
    return plain(text).replace("[", r"\[")


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
