"""JSON is a record that can be, or damaged: one error, whatever is wrong."""

import msgspec
import pytest

from gpudash.json_input import DamagedError, decoded
from gpudash.protocol.records import Settings


class Part(msgspec.Struct):
    count: int = 0
    settings: Settings = {}


class Whole(msgspec.Struct):
    at_s: float | None = None
    change: float = 0.0
    steps: int | None = None
    numbers: tuple[int, ...] = ()
    parts: tuple[Part, ...] = ()
    part: Part | None = None
    named: dict[str, Part] = {}


@pytest.mark.parametrize(
    "number", ["9" * 400, "-" + "9" * 400, "9" * 5000, "1e18999", "1e300", str(2**63), "NaN"]
)
def test_a_number_that_nothing_measures_is_damage(number: str) -> None:
    with pytest.raises(DamagedError):
        decoded(f'{{"a":[[{number}]]}}'.encode(), dict[str, list[list[float]]])


@pytest.mark.parametrize("text", [b"", b"\xff", b"[" * 100_000, b"[1]", b'{"a":'])
def test_what_is_of_another_form_is_damage(text: bytes) -> None:
    with pytest.raises(DamagedError):
        decoded(text, dict[str, int])


def test_what_is_whole_is_decoded() -> None:
    now_ns = 1_790_000_000_000_000_000
    assert decoded(msgspec.json.encode({"a1e": now_ns}), dict[str, int]) == {"a1e": now_ns}


@pytest.mark.parametrize(
    "text",
    [
        '{"steps":-1}',
        '{"parts":[{},{"count":-1}]}',
        '{"part":{"count":-1}}',
        '{"named":{"x":{"count":-1}}}',
        '{"at_s":1e12}',
        '{"at_s":-1e12}',
        '{"part":{"settings":{"batch_size":"%s"}}}' % ("9" * 400),
    ],
)
def test_a_record_that_cannot_be_is_damage(text: str) -> None:
    with pytest.raises(DamagedError):
        decoded(text.encode(), Whole)


def test_a_record_that_can_be_is_decoded() -> None:
    found = Whole(
        at_s=-1.0,
        change=-0.5,
        steps=0,
        numbers=(-15,),
        part=Part(settings={"batch_size": "64", "seed": "x", "name": "x" * 400}),
    )
    assert decoded(msgspec.json.encode(found), Whole) == found
