"""How one of several ranks behaves when all of them decide together."""

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from torch.distributed import HashStore

from gpudash.protocol.commands import Change
from gpudash.protocol.training import BlocksEnded, Refused
from gpudash.script import driver
from gpudash.script.training import ScriptTraining
from gpudash.training import commanded
from gpudash.training.agreement import Decision
from tests.answers import blocks
from tests.script.toy_script import connected, script


def test_a_rank_waits_for_less_than_the_collectives_timeout_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = HashStore()
    store.set_timeout(timedelta(seconds=0.2))
    monkeypatch.setattr(commanded, "process_store", lambda: store)
    training = ScriptTraining(None, SimpleNamespace(world_size=2, device=None), None)
    assert training.decide("1").refusal == "rank 1 did not answer within 0.05 s"


def test_a_rank_whose_lever_breaks_refuses_all_open_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = {}

    def decide(
        _training: ScriptTraining,
        topic: str,
        refusal: str | None = None,
        payload: str = "",
        **_how: bool,
    ):
        refusals[topic] = refusal
        return Decision(refusal, payload)

    monkeypatch.setattr(ScriptTraining, "decide", decide)
    monkeypatch.setattr(driver, "DUE_EVERY_S", 0.0)  # commands are read at the next border
    with script(tmp_path, world_size=2) as training:
        dashboard = connected(training, tmp_path)
        training.levers.fails = RuntimeError
        step = training.steps + 5
        dashboard.send(Change(id=7, settings={"precision": "bf16"}, at_step=step))
        dashboard.send(Change(id=8, settings={"compile": "off"}, at_step=step))
        training.until(lambda: len(dashboard.of(Refused)) == 2)
    assert refusals[f"{step}.7.entered"] == "gpudash failed there"
    assert refusals[f"{step}.8"].startswith("gpudash stopped measuring")


def test_a_rank_keeps_a_call_to_rehearse_for_the_next_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ScriptTraining,
        "decide",
        lambda _training, _topic, refusal=None, payload="", **_how: Decision(refusal, payload),
    )
    with script(tmp_path, world_size=2) as training:
        dashboard = connected(training, tmp_path)
        asked = blocks(1, 1, {}, {"compile": "on"}, min_steps=100)
        dashboard.send(replace(asked, at_step=training.steps + 200))
        training.until(lambda: dashboard.of(BlocksEnded) or dashboard.gone)
    assert [ended.why for ended in dashboard.of(BlocksEnded)] == ["no block is left"]
    assert [one.block for one in dashboard.of("changed")] == [0, 1, None]
