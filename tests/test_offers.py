"""Levers that a training offers, as the screen and the command line know levers."""

import pytest

from gpudash.errors import UsageError
from gpudash.levers.known import KNOWN
from gpudash.offers import NO_FROZEN, canonical, check_for_script, of_driver, refusal
from gpudash.protocol.training import SWITCH, Lever
from tests.scripted_run import BEGAN_S, gpu
from workloads import CATALOGUE
from workloads.levers import NUMERICS, LeverError


def offer(kind, default, **changes):
    known = {"summary": "what it does", "source": "torch", "effect": "new loader"}
    return Lever(**{"name": "lever", "kind": kind, "default": default} | known | changes)


def test_a_switch_a_choice_and_a_count():
    levers = (
        offer("switch", "on"),
        offer("choice", "script", choices=("script", "bf16")),
        offer("count", "2", minimum=0, maximum=8),
    )
    assert [one.values for one in levers] == [SWITCH, ("script", "bf16"), ()]
    stepped = [one.step(one.default, 1) for one in levers]
    assert stepped == ["off", "bf16", "4"]
    assert [*map(canonical, levers, stepped)] == stepped


def test_of_each_lever_it_is_known_what_it_does_to_the_numbers():
    levers = [lever.name for one in CATALOGUE.values() for lever in one.of_processes().levers]
    assert {*levers, *KNOWN} == NUMERICS.keys()


@pytest.mark.parametrize("text", ["", "1_0", " 8", "8.0", "-1", "65", "٣", "9" * 5000])
def test_only_digits_are_a_number(text):
    with pytest.raises(LeverError, match="from 0 to 64"):
        canonical(offer("count", "2", minimum=0, maximum=64), text)


def test_a_name_that_is_nearly_valid_is_told_which_is():
    told = "^lever lever: 'bf17' is not valid; valid: script, bf16; did you mean bf16[?]$"
    with pytest.raises(LeverError, match=told):
        canonical(offer("choice", "script", choices=("script", "bf16")), "bf17")


def test_a_number_that_is_refused_is_told_why_the_range_is_no_wider():
    number = offer("count", "2", minimum=1, maximum=8, bound="there must be one")
    with pytest.raises(LeverError, match=r"'0' is not valid; .* 1 to 8 \(there must be one\)"):
        canonical(number, "0")


def test_a_lever_is_refused_with_its_reason_or_because_it_is_not_offered():
    offers = (offer("switch", "off"), offer("count", "", name="other", refusal="not ours"))
    assert refusal("lever", offers) is None
    assert refusal("other", offers) == "not ours"
    assert "workload of gpudash's own" in refusal("pipelined", offers)
    assert refusal("frozen_precision", offers) == NO_FROZEN


def test_where_nothing_is_offered_the_training_decides():
    assert refusal("pipelined", ()) is None


def test_a_name_that_no_script_has_is_told_those_that_can_be_moved():
    with pytest.raises(UsageError) as refused:
        check_for_script("num_worker")
    told = str(refused.value)
    assert "num_workers, prefetch_factor" in told
    assert "batch_size" not in told
    with pytest.raises(UsageError, match="sets its batch size itself"):
        check_for_script("batch_size")


# ── the driver's own ────────────────────────────────────────────────────────────────────


def test_the_drivers_levers_have_their_values_now_and_say_that_they_need_root():
    power, clock = of_driver(gpu(BEGAN_S, power_limit_w=700.0, sm_clock_mhz=1755.0))
    assert (power.name, power.default) == ("power_limit", "700 W")
    assert (clock.name, clock.default) == ("sm_clock", "1755 MHz")
    for lever in (power, clock):
        for offers in ((), (offer("switch", "off"),)):
            assert refusal(lever.name, offers).startswith("needs root: nvidia-smi ")


def test_a_lever_of_the_driver_whose_value_is_not_known_is_not_shown():
    assert of_driver(None) == ()
    assert of_driver(gpu(BEGAN_S, sm_clock_mhz=1755.0)) == ()
    assert [one.name for one in of_driver(gpu(BEGAN_S, power_limit_w=700.0))] == ["power_limit"]
