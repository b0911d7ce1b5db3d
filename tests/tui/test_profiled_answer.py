"""A profile adds evidence to the answer, as long as its settings are the present ones."""

from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace as changed

from gpudash.snapshot import Snapshot
from gpudash.tui.screens.timeline import TimelineScreen
from tests.diagnosis.trainings import launching
from tests.scripted_worker import TRACE
from tests.tui.driving import dashboard
from tests.tui.traces import profiled

RUNNING = changed(launching(), can=(*Snapshot().can, "profile"))
OTHER = changed(RUNNING, settings=RUNNING.settings | {"batch_size": "16"})
PROFILE = "1 step traced"
"""Of its evidence the line that names it."""


def knowing(snapshot, of=RUNNING):
    """The snapshot once the profile was taken, of a run as `of` is set."""
    told = profiled(path=str(TRACE))
    return changed(snapshot, profile=told, profile_of=(of.workload, of.settings))


@asynccontextmanager
async def asked():
    """A run of which a profile was asked for."""
    async with dashboard(snapshot=RUNNING) as d:
        await d.press("t")
        while not d.engine.calls_of("profile"):
            await d.pilot.pause(0.01)
        yield d


async def read(d, snapshot):
    """Have the profile arrive and summed up, and leave its timeline."""
    read_before = len(d.engine.calls_of("deepen"))
    await d.show(snapshot)
    while not isinstance(d.app.screen, TimelineScreen):
        await d.pilot.pause(0.01)
    while len(d.engine.calls_of("deepen")) == read_before:
        await d.pilot.pause(0.01)
    await d.press("escape")
    await d.show(snapshot)


async def evidence(d):
    await d.press("e")
    shown = d.text()
    await d.press("escape")
    return shown


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch, tmp_path):
    monkeypatch.setattr("gpudash.tui.profiles.folder", lambda: tmp_path)


async def test_a_profile_that_arrives_deepens_the_answer_and_is_in_its_evidence():
    async with asked() as d:
        assert "LAUNCH-BOUND" in d.text()
        assert PROFILE not in await evidence(d)
        await read(d, knowing(RUNNING))
        assert "LAUNCH-BOUND" not in d.text()
        assert "GPU-BOUND" in d.text()
        assert PROFILE in await evidence(d)


async def test_with_other_settings_or_another_workload_the_answer_rests_on_it_no_longer():
    async with asked() as d:
        await read(d, knowing(RUNNING))
        for other in (OTHER, changed(RUNNING, workload="masked_loss")):
            await d.show(knowing(other), shows="LAUNCH-BOUND")
            assert PROFILE not in await evidence(d)
            await d.show(knowing(RUNNING))
            assert PROFILE in await evidence(d)
