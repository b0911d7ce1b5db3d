"""The states of the mock-ups, as text: compared with files that were looked at.

`GPUDASH_WRITE_SCREENS=1 pytest tests/tui/test_screens.py` writes them anew. Look at them then.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudash.offers import levers_of
from gpudash.protocol import Plan
from gpudash.snapshot import Snapshot
from tests.tui import scenes, scripts
from tests.tui.driving import Driver, dashboard
from tests.tui.fake_engine import FakeEngine
from workloads.levers import Count

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


SCRIPT = Plan(workload="train.py", settings={})


class Player:
    """Of a recording; nobody plays it here."""

    position_s = 31.0


@pytest.fixture(autouse=True)
def cores(monkeypatch):
    """The same machine everywhere: 16 cores, for which 8 workers are the default."""
    encdec = tuple(
        Count(**vars(lever) | {"default": 8}) if lever.name == "num_workers" else lever
        for lever in levers_of("encdec", {})
    )

    def levers(name, settings, offers=()):
        return encdec if name == "encdec" else levers_of(name, settings, offers)

    for module in ("gpudash.tui.control", "tests.tui.fake_engine"):
        monkeypatch.setattr(f"{module}.usable_cores", lambda: 16)
    for module in ("gpudash.tui.control", "gpudash.views.answer"):
        monkeypatch.setattr(f"{module}.levers_of", levers)


async def arrive(d: Driver, name: str) -> None:
    """Bring the dashboard into a state."""
    d.app._main.last_start_s = None if name.startswith("script") else 4.8
    if name == "comparing":
        await d.show(scenes.serial())  # what is known from before it
    await d.show(STATES[name]())
    if name == "failed":
        d.engine.log(*scenes.TRACEBACK, scenes.FAILURE)
        await d.settle()
    if name in ("script", "script-ranks"):
        d.engine.print(*scripts.PRINTED)
        await d.settle()
    if name in TAB:
        d.app._main.open_tab(TAB[name])
        await d.settle()
        await d.settle()  # the panels may have other places now


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", STATES)
async def test_a_state_looks_like_its_golden_file(name, size):
    player = Player() if name == "replay" else None
    engine = FakeEngine(SCRIPT if name.startswith("script") else None)
    async with dashboard(size, engine, player=player) as d:
        await arrive(d, name)
        seen = "".join(f"{line.rstrip()}\n" for line in d.lines())
    path = SCREENS / f"{name}-{size[0]}x{size[1]}.txt"
    if os.environ.get("GPUDASH_WRITE_SCREENS"):
        SCREENS.mkdir(exist_ok=True)
        path.write_text(seen)
    assert seen == path.read_text()
