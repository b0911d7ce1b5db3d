"""A lever accepts exactly its valid values and says so when it does not."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import CATALOGUE, find_workload
from workloads.levers import Choice, Count, Lever, LeverError, Switch, find, resolve

ENTRY = CATALOGUE["encdec"]
BATCH = find(ENTRY.levers, "batch_size")
ALL_LEVERS = [
    pytest.param(lever, id=f"{entry.name}.{lever.name}")
    for entry in CATALOGUE.values()
    for lever in entry.levers
]


@pytest.mark.parametrize("lever", ALL_LEVERS)
def test_the_default_is_valid_and_canonical(lever: Lever) -> None:
    assert lever.canonical(lever.default_text) == lever.default_text


@pytest.mark.parametrize("lever", ALL_LEVERS)
def test_each_lever_says_what_it_does_and_where_it_comes_from(lever: Lever) -> None:
    assert lever.summary.endswith(".")
    assert lever.source
    assert lever.effect in ("next step", "new loader", "rebuilt model")


@pytest.mark.parametrize("text", ["0", "-1", "", "8.0", "1e3", "1_0", " 8", "٨", "9" * 400])
def test_a_bad_batch_size_names_the_lever_the_text_and_the_valid_range(text: str) -> None:
    with pytest.raises(LeverError, match="lever batch_size: .* whole number from 1 to 1048576"):
        BATCH.parse(text)


@pytest.mark.parametrize("text", ["many", "", "-1", "1.5", "9" * 400])
@pytest.mark.parametrize("name", ["batch_size", "data", "pipelined"])
def test_from_a_value_that_is_none_there_is_no_step(name: str, text: str) -> None:
    lever = find(ENTRY.levers, name)
    with pytest.raises(LeverError, match=f"lever {name}: .* is not valid"):
        lever.step(text, +1)


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    with pytest.raises(LeverError, match="unknown lever 'batchsize'; valid: pipelined, batch_size"):
        resolve(ENTRY.levers, {"batchsize": "8"})
    with pytest.raises(LeverError, match="unknown workload 'resnet'; valid: encdec"):
        find_workload("resnet")


@given(st.integers(1, 1 << 20))
def test_plus_and_minus_reach_the_neighbouring_powers_of_two(number: int) -> None:
    above, below = int(BATCH.step(str(number), +1)), int(BATCH.step(str(number), -1))
    powers = [1 << i for i in range(21)]
    assert above == min([p for p in powers if p > number], default=1 << 20)
    assert below == max([p for p in powers if p < number], default=1)


def test_a_choice_cycles_and_a_switch_flips() -> None:
    data = find(ENTRY.levers, "data")
    assert [data.step("loader", +1), data.step("loader", -1)] == ["cached", "resident"]
    assert find(ENTRY.levers, "pipelined").step("off", +1) == "on"


@given(st.sampled_from(ENTRY.levers), st.text("0189-.eonf ٨", max_size=8))
def test_any_text_is_either_canonicalised_or_refused(lever: Lever, text: str) -> None:
    try:
        canonical = lever.canonical(text)
    except LeverError:
        return
    assert lever.canonical(canonical) == canonical
    assert isinstance(lever, Switch | Choice | Count)


def test_the_catalogue_is_listed_without_importing_torch() -> None:
    code = "import sys, workloads; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
