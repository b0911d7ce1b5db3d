"""Driving the real app over a fake engine, and reading what is on its screen."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from textual import events
from textual.app import App
from textual.pilot import Pilot
from textual.strip import Strip

from gpudash.diagnosis.answer import Answers
from gpudash.protocol.commands import Plan
from gpudash.snapshot import Snapshot, runs_on
from gpudash.tui.app import Dashboard
from gpudash.tui.panels import View
from tests.tui.fake_engine import FakeEngine, answered, training
from tests.tui.frames import frame, text_of
from tests.tui.idle import frame_of, idle, painted_at_once

USUAL = View()
Texts: TypeAlias = str | Sequence[str]


def several(texts: Texts) -> Sequence[str]:
    return (texts,) if isinstance(texts, str) else texts


def strips_of(app: App[object]) -> list[Strip]:
    """What an app shows now, row by row."""
    return frame_of(app)


async def mouse(pilot: Pilot[object], sent: Sequence[object], *args, **kwargs) -> None:
    """Send events of the mouse that the pilot has no method for."""
    await pilot._post_mouse_events(sent, *args, **kwargs)


@dataclass
class Driver:
    """The app under test, its engine, and methods to press keys and click."""

    app: Dashboard
    engine: FakeEngine
    pilot: Pilot[None]

    async def press(self, *keys: str, shows: Texts = (), hides: Texts = ()) -> None:
        await self.app._press_keys(keys)
        await self.settle()
        self.check(shows, hides)

    def check(self, shows: Texts, hides: Texts) -> None:
        """Check that the screen shows all of these texts, and none of those."""
        text = self.text() if shows or hides else ""
        assert [one for one in several(shows) if one not in text] == [], text
        assert [one for one in several(hides) if one in text] == [], text

    async def press_together(self, *keys: str) -> None:
        """Press keys that arrive in one write of the terminal: none waits for the one before."""
        for key in keys:
            character = key if len(key) == 1 else {"enter": "\r"}.get(key)
            self.app.post_message(events.Key(key, character))
        await self.settle()

    async def is_refused(self, *keys: str, why: str) -> None:
        """Press keys of which the last can do nothing now: it says why, and asks nothing."""
        asked = len(self.engine.calls)
        await self.press(*keys)
        assert self.notices() == [why], keys
        assert len(self.engine.calls) == asked, keys
        assert self.app.screen is self.app.main_screen
        self.app.clear_notifications()

    async def type(self, text: str) -> None:
        names = {".": "full_stop", "-": "minus", "/": "slash", "_": "underscore"}
        await self.press(*(names.get(character, character) for character in text))

    def choose(self, lever: str) -> None:
        """Move the cursor down to a lever."""
        levers = self.app.main_screen.levers
        for _ in self.app.control.levers.rows():
            if levers.chosen.name == lever:
                break
            levers.move(1)
        assert levers.chosen.name == lever

    async def show(
        self,
        snapshot: Snapshot,
        last_command: int | None = None,
        *,
        shows: Texts = (),
        hides: Texts = (),
    ) -> None:
        self.engine.publish(snapshot, last_command)
        await self.settle()
        self.check(shows, hides)

    async def resize(self, columns: int, rows: int) -> None:
        await self.pilot.resize_terminal(columns, rows)
        await self.settle()

    async def settle(self) -> None:
        """Wait until all is done and painted."""
        await idle()

    async def until(self, text: str) -> None:
        """Wait until the screen shows `text`; the test's own time limit is the limit."""
        while text not in self.text():
            await self.pilot.pause(0.02)

    async def click(self, text: str, nth: int = 0, times: int = 1) -> None:
        """Click on the nth place at which the screen shows `text`."""
        places = [(line.index(text) + 1, y) for y, line in enumerate(self.lines()) if text in line]
        await self.pilot.click(offset=places[nth], times=times)
        await self.settle()

    async def mouse(self, sent: Sequence[object], *args, **kwargs) -> None:
        """Send events of the mouse, such as of its wheel, which the pilot has no method for."""
        await mouse(self.pilot, sent, *args, **kwargs)

    @property
    def has_left(self) -> bool:
        """Whether the app has been told to end."""
        return self.app._exit

    def footer(self) -> dict[str, dict[str, str]]:
        """The footer's keys by action: text and its ink."""
        cells = self.app.main_screen.query_one("#footer").cells
        return {cell.action: dict(cell.parts) for cell in cells}

    def lines(self) -> list[str]:
        return [strip.text for strip in strips_of(self.app)]

    def text(self) -> str:
        return "\n".join(self.lines())

    def notices(self) -> list[str]:
        return [notice.message for notice in self.app._notifications]


class Still:
    """What the main screen shows of a snapshot: no app runs, and no key can be pressed."""

    def __init__(self, size: tuple[int, int], snapshot: Snapshot, view: View) -> None:
        self.size, self.view = size, view
        self._answers = Answers()
        self.show(snapshot)

    def show(self, snapshot: Snapshot) -> None:
        self.snapshot = answered(snapshot, self._answers)

    def resize(self, columns: int, rows: int) -> None:
        self.size = columns, rows

    def lines(self) -> list[str]:
        return [*map(text_of, frame(self.snapshot, self.view, self.size))]

    def text(self) -> str:
        return "\n".join(self.lines())


def still(
    size: tuple[int, int] = (120, 40), snapshot: Snapshot | None = None, view: View = USUAL
) -> Still:
    """Look at a snapshot, as the main screen shows it."""
    return Still(size, snapshot or Snapshot(workload="encdec"), view)


RUNNING = answered(training())
Test = TypeVar("Test", bound=Callable[..., object])


def showing(snapshot: Snapshot | None = RUNNING, **options) -> Callable[[Test], Test]:
    """Say which dashboard a test's `d` is, as the arguments of `dashboard`."""

    def of(test: Test) -> Test:
        test.dashboard = options | {"snapshot": snapshot}
        return test

    return of


@asynccontextmanager
async def dashboard(
    size: tuple[int, int] = (120, 40),
    engine: FakeEngine | None = None,
    snapshot: Snapshot | None = None,
    *,
    notifications: bool = False,
    fails: bool = False,
    **options,
) -> AsyncIterator[Driver]:
    """Run the app until it has started its engine, and show it a snapshot.

    A contained failure fails the test too, unless `fails` expects one.
    """
    of = snapshot.workload if snapshot is not None and runs_on(snapshot) else "encdec"
    engine = engine or FakeEngine(Plan(workload=of, settings={}))
    app = Dashboard(lambda: engine, engine.plan, **{"rate_hz": 1000.0, **options})
    if fails:
        painted_at_once.add(app)
    async with app.run_test(size=size, notifications=notifications) as pilot:
        driver = Driver(app=app, engine=engine, pilot=pilot)
        while engine.listener is None:
            await pilot.pause(0.001)
        if snapshot is not None:
            await driver.show(snapshot)
        yield driver
        assert fails or not app.failures, app.failures
