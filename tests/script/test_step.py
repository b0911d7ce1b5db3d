"""`gpudash.step()` and the callbacks say where steps begin and end; outside of a run, nothing."""

import importlib
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

import gpudash
from gpudash.script import explicit
from tests.test_imports import loaded_by


@pytest.fixture
def told(monkeypatch):
    """Writes down what the tracker is told."""
    found = []
    monkeypatch.setattr(explicit, "tell", lambda _event, *what: found.append(what or "begins"))
    return found


@pytest.fixture
def callback(monkeypatch):
    """What makes a framework's callback, with a base class that has nothing."""

    def make(name, base_module, base):
        parts = base_module.split(".")
        for end in range(1, len(parts) + 1):
            module = ModuleType(".".join(parts[:end]))
            monkeypatch.setitem(sys.modules, module.__name__, module)
        setattr(module, base, type(base, (), {}))
        monkeypatch.delitem(sys.modules, f"gpudash.integrations.{name}", raising=False)
        made = importlib.import_module(f"gpudash.integrations.{name}").GpudashCallback()
        monkeypatch.delitem(sys.modules, f"gpudash.integrations.{name}")
        return made

    return make


@pytest.fixture
def lightning(callback):
    return callback("lightning", "lightning.pytorch.callbacks", "Callback")


@pytest.fixture
def huggingface(callback):
    return callback("huggingface", "transformers", "TrainerCallback")


def test_outside_of_a_run_it_does_nothing_and_imports_neither_torch_nor_msgspec():
    loaded = loaded_by("import gpudash\nfor _ in range(3):\n  with gpudash.step(tokens=8): pass")
    assert not loaded & {"torch", "msgspec", "numpy"}


def test_outside_of_a_run_an_exception_passes_through(monkeypatch):
    monkeypatch.setattr(explicit, "tell", None)
    with pytest.raises(KeyError, match="mine"), gpudash.step():
        raise KeyError("mine")


def test_the_block_is_the_step_and_what_it_trains_on_may_be_said_inside(told):
    with gpudash.step(samples=4) as step:
        assert told == ["begins"]
        step.tokens = 9
    assert told[1:] == [(4, 9, True)]


def test_a_block_left_early_counts_and_a_failed_one_does_not(told):
    for number in range(2):
        with gpudash.step():
            if number:
                continue
    with pytest.raises(KeyError), gpudash.step():
        raise KeyError
    assert told[1::2] == [(None, None, True)] * 2 + [(None, None, False)]


def test_lightning_ends_a_step_where_its_optimizer_has_stepped(lightning, told):
    trainer = SimpleNamespace(global_step=5)
    batch = {"input_ids": torch.ones(4, 16), "labels": torch.ones(4)}
    for _ in range(2):
        lightning.on_train_batch_start(trainer, None, batch, 0)
        lightning.on_train_batch_end(trainer, None, None, batch, 0)
        lightning.on_train_batch_start(trainer, None, batch, 1)
        trainer.global_step += 2  # two optimizers
        lightning.on_train_batch_end(trainer, None, None, batch, 1)
    assert told == ["begins", (8, 128, True)] * 2


IDS = torch.ones(4, 16)


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": IDS, "attention_mask": IDS.bool().to("meta")},  # waits for no device
        [torch.ones(4, 3), torch.ones(4)],
    ],
)
def test_lightning_leaves_tokens_that_a_batch_does_not_show_to_the_loaders_batch(
    lightning, told, batch
):
    trainer = SimpleNamespace(global_step=0)
    lightning.on_train_batch_start(trainer, None, batch, 0)
    trainer.global_step = 1
    lightning.on_train_batch_end(trainer, None, None, None, 0)
    assert told == ["begins", (4, None, True)]


@pytest.mark.parametrize("end", ["on_exception", "on_train_end"])
def test_a_step_that_lightning_never_ends_does_not_count(lightning, told, end):
    trainer = SimpleNamespace(global_step=0)
    lightning.on_train_batch_start(trainer, None, [torch.ones(4)], 0)
    getattr(lightning, end)(trainer, None)
    getattr(lightning, end)(trainer, None)
    assert told == ["begins", (None, None, False)]


def test_the_hugging_face_trainer_says_it_itself(huggingface, told):
    for _ in range(2):
        huggingface.on_step_begin(None, None, None, model=None)
        huggingface.on_step_end(None, None, None, model=None)
    assert told == ["begins", (None, None, True)] * 2


def test_a_step_that_its_trainer_never_ended_does_not_count(huggingface, told):
    huggingface.on_step_begin(None, None, None)
    huggingface.on_step_begin(None, None, None)
    assert told == ["begins", (None, None, False), "begins"]
