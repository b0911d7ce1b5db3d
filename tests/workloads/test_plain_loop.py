"""encdec trains what a tutorial's loop trains, and the host does little beyond it."""

import sys
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.workloads.trainings import CPU, Make, Operators, making, train

PATH = Path(__file__).parents[2] / "benchmarks" / "plain_loop.py"
BATCH_SIZE = 2
PIPELINED = pytest.mark.parametrize("pipelined", ["off", "on"])


@pytest.fixture
def make() -> Iterator[Make]:
    resident = {"data": "resident", "batch_size": str(BATCH_SIZE), "precision": "fp32"}
    yield from making("encdec", **resident)


@pytest.fixture(scope="module")
def plain_loop() -> Any:
    spec = spec_from_file_location("plain_loop", PATH)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@PIPELINED
def test_it_trains_what_a_plain_loop_trains_to_the_bit(
    make: Make, plain_loop: Any, pipelined: str
) -> None:
    plain = plain_loop.Plain(BATCH_SIZE, CPU, "small").serial()
    losses = [next(plain).item() for _ in range(6)]
    assert [one.item() for one in train(make(pipelined=pipelined), 6)] == losses


def operators(step: Callable[[], object]) -> list[str]:
    with Operators() as seen:
        step()
    return sorted(seen.names)


def python_calls(step: Callable[[], object]) -> int:
    """Count the functions in Python that a step calls, of torch and of ours."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(None)
    return count


@PIPELINED
def test_a_step_adds_no_operator_and_few_calls_to_a_plain_loop(
    make: Make, plain_loop: Any, pipelined: str
) -> None:
    training, plain = make(pipelined=pipelined), plain_loop.Plain(BATCH_SIZE, CPU, "small").serial()
    for _ in range(3):  # the first steps of a process call more
        training.step()
        next(plain)
    assert operators(training.step) == operators(lambda: next(plain))
    beyond = python_calls(training.step) - python_calls(lambda: next(plain))
    # on a CPU two streams enter a context that does nothing, which costs two
    assert beyond <= {"off": 28, "on": 33}[pipelined]
