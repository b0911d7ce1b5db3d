"""The states of the mock-ups, as text: compared with files that were looked at.

`GPUDASH_WRITE_SCREENS=1 pytest tests/tui/test_screens.py` writes them anew. Look at them then.
"""

from collections import deque
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import msgspec
import pytest

from gpudash.diagnosis.answer import Answers
from gpudash.reference_levers import reference_levers
from gpudash.snapshot import Snapshot
from gpudash.tui.arrangement import PanelChoice
from gpudash.tui.inbox import Mail
from gpudash.tui.panels import View
from tests.golden import golden, lined
from tests.tui import scenes, scripts
from tests.tui.driving import dashboard, text_of
from tests.tui.fake_engine import answered
from tests.tui.frames import frame

SCREENS = Path(__file__).parent / "screens"
SIZES = [(80, 24), (120, 40), (200, 50)]
STATES: dict[str, Callable[[], Snapshot]] = {
    "starting": scenes.starting,
    "running": scenes.running,
    "comparing": scenes.comparing,
    "decided": scenes.decided,
    "no-gpu": scenes.without_gpu,
    "failed": scenes.failed,
    "replay": scenes.replayed,
    "script-starting": scripts.starting,
    "script": scripts.training,
    "script-ranks": lambda: scripts.of_ranks(8),
    "script-gpus": lambda: scripts.of_gpus(8),
    "script-ended": scripts.ended,
}
TAB = {
    **dict.fromkeys(("comparing", "decided"), "ab"),
    **dict.fromkeys(("script-ranks", "script-gpus"), "ranks"),
    "failed": "log",
}
"""What the user, or the app, has opened."""


class Player:
    """Of a recording; nobody plays it here."""

    position_s = 31.0


@pytest.fixture(autouse=True)
def cores(monkeypatch):
    """The same machine everywhere: 16 cores, for which 8 workers are the default."""
    encdec = tuple(
        msgspec.structs.replace(lever, default="8") if lever.name == "num_workers" else lever
        for lever in reference_levers("encdec", {})
    )

    def levers(name, settings):
        return encdec if name == "encdec" else reference_levers(name, settings)

    monkeypatch.setattr("tests.tui.fake_engine.usable_cores", lambda: 16)
    monkeypatch.setattr("tests.tui.fake_engine.reference_levers", levers)


def shown_in(name: str) -> Snapshot:
    """The snapshot of a state, with its answer; an A/B has that from before it."""
    answers = Answers()
    if name == "comparing":
        answered(scenes.serial(), answers)
    return answered(STATES[name](), answers)


def mail_of(name: str) -> Mail:
    """What has been printed and logged in a state."""
    logged = [*scenes.TRACEBACK, scenes.FAILURE] if name == "failed" else []
    if found := STATES[name]().found:
        logged = [f"found: {found}"]
    printed = scripts.PRINTED if name in ("script", "script-ranks") else ()
    return Mail(lines=deque(logged), output=deque(printed))


def view_of(name: str) -> View:
    """What the user, or the app, has opened in a state."""
    tab = TAB.get(name, "output" if name.startswith("script") else "history")
    focus = "pane" if name in TAB else "levers"
    return View(tab=tab, focus=focus, panels=PanelChoice(chosen=focus))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", STATES)
def test_a_state_looks_like_its_golden_file(name, size):
    last_start_s = None if name.startswith("script") else 4.8
    view, mail = view_of(name), mail_of(name)
    shown = frame(shown_in(name), view, size, mail=mail, last_start_s=last_start_s)
    seen = lined(map(text_of, shown))
    assert seen == golden(SCREENS / f"{name}-{size[0]}x{size[1]}.txt", seen)


OF_ONE_APP = [
    ("starting", "comparing", "decided", "running", "no-gpu", "failed"),
    ("replay",),
    ("script-starting", "script-ended", "script", "script-ranks", "script-gpus"),
]


@pytest.mark.parametrize("names", OF_ONE_APP, ids=["run", "replay", "script"])
async def test_the_screen_shows_its_frame_at_every_size(names):
    """The golden files are of frames: this is what makes them files of the screen."""
    player = Player() if "replay" in names else None
    async with dashboard(snapshot=shown_in(names[0]), player=player) as d:
        main = d.app.main_screen
        d.engine.log(*scenes.TRACEBACK)
        d.engine.print(*scripts.PRINTED)
        for name, size in zip(names, cycle(SIZES)):
            await d.show(shown_in(name))
            main.open_tab(TAB.get(name, "history"))
            await d.resize(*size)
            mail = Mail(lines=main.pane.lines["log"], output=main.pane.lines["output"])
            shown = frame(shown_in(name), main.view, size, mail=mail)
            assert d.lines() == [*map(text_of, shown)]
