"""Levers on models without an optimizer, each beside that of the models that train."""

import pytest
import torch
from torch import nn

from gpudash.diagnosis.effects import EFFECTS
from gpudash.levers.known import KNOWN
from gpudash.levers.offers import UNKNOWN
from tests.script.levers.scripts import (
    ConvNet,
    follow,
    found,
    levers,
    move,
    refuses,
    teacher_and_student,
)

FROZEN = ("frozen_compile", "frozen_channels_last", "frozen_precision")
IMAGES = torch.randn(4, 3, 8, 8)


@pytest.fixture
def encoder():
    model = ConvNet().eval()
    root = follow(model)
    root.is_frozen = root.was_called = True
    with torch.no_grad():
        model(IMAGES)
    yield root
    del model  # a root does not keep it


@pytest.fixture
def trained():
    model = nn.Linear(3, 2)
    root = follow(model)
    model(torch.ones(1, 3))
    yield root
    del model


def test_there_are_none_where_no_model_is_frozen(trained):
    assert {offer.name for offer in levers(trained).offers}.isdisjoint(FROZEN)


def test_each_is_named_apart_and_says_how_it_helps(trained, encoder):
    offers = {offer.name: offer for offer in levers(trained, frozen=(encoder,)).offers}
    assert offers.keys() >= set(FROZEN)
    helps = {name: [word for _, word in offers[name].helps] for name in FROZEN}
    assert helps == {
        "frozen_compile": ["fewer kernels in frozen models"],
        "frozen_channels_last": ["image order in frozen models"],
        "frozen_precision": ["bf16 in frozen models"],
    }
    assert EFFECTS.keys() >= {word for words in helps.values() for word in words}
    assert offers["frozen_precision"].impossible == (("tf32", "TF32 needs a GPU"),)


def test_all_that_a_script_may_offer_is_known_before_it_starts(trained, encoder):
    """Else a comparison would be refused without asking the training."""
    offers = {offer.name: offer for offer in levers(trained, frozen=(encoder,)).offers}
    assert offers.keys() == KNOWN.keys()
    for name, offer in offers.items():
        values = {*offer.choices, *dict(offer.impossible)} if KNOWN[name] else set()
        assert values - {UNKNOWN} <= {*KNOWN[name]}


@pytest.mark.parametrize(
    "change",
    [{"frozen_precision": "bf16"}, {"frozen_channels_last": "on"}, {"frozen_compile": "on"}],
    ids=str,
)
def test_it_moves_the_frozen_model_alone(trained, encoder, change):
    moved = levers(trained, frozen=(encoder,))
    before = {name: value for name, value in moved.settings.items() if name not in FROZEN}
    with torch.no_grad():
        computed = encoder.module(IMAGES)
        move(moved, **change)
        torch.testing.assert_close(encoder.module(IMAGES), computed, rtol=0.05, atol=0.05)
    assert (encoder.around is None, trained.around) == (False, None)
    assert moved.settings.items() >= {**before, **change}.items()
    moved.restore()
    assert encoder.around is None
    with torch.no_grad():
        assert torch.equal(encoder.module(IMAGES), computed)


def test_bf16_is_active_inside_the_frozen_model(trained, encoder):
    move(levers(trained, frozen=(encoder,)), frozen_precision="bf16")
    with torch.no_grad():
        assert encoder.module(IMAGES).dtype == torch.float32
    assert encoder.module.seen[0] == torch.bfloat16


def test_one_that_was_not_called_lately_is_refused(trained, encoder):
    moved = levers(trained, frozen=(encoder,))
    encoder.newest = None
    refuses(moved, "not called", frozen_precision="bf16")


def test_another_frozen_model_puts_their_levers_back_and_no_others(trained, encoder):
    moved = levers(trained, frozen=(encoder,))
    move(moved, frozen_precision="bf16", precision="bf16")
    another = nn.Linear(3, 2)
    moved.update(found(trained, frozen=(follow(another),)))
    assert (moved.settings["frozen_precision"], moved.settings["precision"]) == ("fp32", "bf16")


def timed(moved):
    return {
        (one.lever, one.value, one.is_frozen): (one.before_ms, one.after_ms)
        for one in moved.timings()
    }


def test_a_value_is_timed_on_the_models_that_it_acts_on(monkeypatch):
    teacher, student = teacher_and_student([0.0], monkeypatch)
    assert timed(levers(student, frozen=(teacher,))) == {
        ("precision", "bf16", False): pytest.approx((4.0, 1.0)),
        ("frozen_precision", "bf16", True): pytest.approx((36.0, 2.0)),
    }
    assert [root.module.was for root in (teacher, student)] == [
        {(False, False)},
        {(True, True)},
    ]  # as in a step


def test_a_frozen_model_that_passes_gradients_is_timed_with_those_that_train(monkeypatch):
    """As a loss by a frozen network: its time is part of forward and backward."""
    teacher, student = teacher_and_student([0.0], monkeypatch)
    judge = teacher.module.requires_grad_(requires_grad=False)
    judge(student.module(torch.ones(2, 3))).sum().backward()
    assert timed(levers(student, frozen=(teacher,))) == {
        ("precision", "bf16", False): pytest.approx((40.0, 37.0)),
        ("frozen_precision", "bf16", False): pytest.approx((40.0, 6.0)),
    }


def test_one_that_was_not_called_keeps_no_other_from_being_timed(monkeypatch):
    teacher, student = teacher_and_student([0.0], monkeypatch)
    teacher.newest = None
    assert timed(levers(student, frozen=(teacher,))).keys() == {("precision", "bf16", False)}
