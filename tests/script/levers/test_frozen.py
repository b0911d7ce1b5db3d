"""Levers on models without an optimizer, each beside that of the models that train."""

import pytest
import torch
from torch import nn

from gpudash.levers.offers import UNKNOWN
from gpudash.offers import OF_SCRIPTS
from gpudash.training.levers import Refusal
from tests.script.levers.scripts import ConvNet, follow, found, levers, move

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
    names = {offer.name for offer in levers(trained).offers}
    assert names.isdisjoint(FROZEN)


def test_each_is_named_apart_and_promises_nothing(trained, encoder):
    offers = {offer.name: offer for offer in levers(trained, frozen=(encoder,)).offers}
    assert offers.keys() >= set(FROZEN)
    assert not any(offers[name].helps for name in FROZEN)
    assert offers["frozen_precision"].impossible == (("tf32", "TF32 needs a GPU"),)


def test_all_that_a_script_may_offer_is_known_before_it_starts(trained, encoder):
    """Else a comparison would be refused without asking the training."""
    offers = {offer.name: offer for offer in levers(trained, frozen=(encoder,)).offers}
    assert offers.keys() == OF_SCRIPTS.keys()
    for name, offer in offers.items():
        values = {*offer.choices, *dict(offer.impossible)} if OF_SCRIPTS[name] else set()
        assert values - {UNKNOWN, "tf32"} <= {*OF_SCRIPTS[name]}


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
    with pytest.raises(Refusal, match="not called"):
        move(moved, frozen_precision="bf16")
    assert moved.settings["frozen_precision"] == "fp32"


def test_another_frozen_model_puts_their_levers_back_and_no_others(trained, encoder):
    moved = levers(trained, frozen=(encoder,))
    move(moved, frozen_precision="bf16", precision="bf16")
    another = nn.Linear(3, 2)
    moved.update(found(trained, frozen=(follow(another),)))
    assert moved.settings["frozen_precision"] == "fp32"
    assert moved.settings["precision"] == "bf16"
