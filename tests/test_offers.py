"""Levers that a training offers, as the screen and the command line know levers."""

import pytest

from gpudash.offers import lever_of, refusal
from gpudash.protocol.training import LeverOffer
from workloads.levers import Choice, Count, LeverError, Switch


def offer(kind, default, **changes):
    known = {"summary": "what it does", "source": "torch", "effect": "new loader"}
    return LeverOffer(**{"name": "lever", "kind": kind, "default": default} | known | changes)


def test_a_switch_a_choice_and_a_count():
    switch = lever_of(offer("switch", "on"))
    choice = lever_of(offer("choice", "script", choices=("script", "bf16")))
    number = lever_of(offer("count", "2", minimum=0, maximum=8))
    assert [type(one) for one in (switch, choice, number)] == [Switch, Choice, Count]
    assert [one.default_text for one in (switch, choice, number)] == ["on", "script", "2"]
    assert choice.step("script", 1) == "bf16"
    assert number.canonical("8") == "8"
    with pytest.raises(LeverError, match="from 0 to 8"):
        number.canonical("9")


def test_it_says_what_the_offer_says():
    lever = lever_of(offer("switch", "off"))
    said = (lever.name, lever.summary, lever.source, lever.effect)
    assert said == ("lever", "what it does", "torch", "new loader")


def test_a_count_that_is_not_known_is_not_0():
    assert lever_of(offer("count", "")).default_text == "–"


def test_a_lever_is_refused_with_its_reason_or_because_it_is_not_offered():
    offers = (offer("switch", "off"), offer("count", "", name="other", refusal="not ours"))
    assert refusal("lever", offers) is None
    assert refusal("other", offers) == "not ours"
    assert refusal("pipelined", offers)


def test_where_nothing_is_offered_the_training_decides():
    assert refusal("pipelined", ()) is None
