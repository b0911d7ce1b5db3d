"""Records in the standard library alone do what they do with msgspec, for each record there is."""

import importlib
import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudash.protocol import records
from gpudash.protocol.commands import AnyCommand
from gpudash.training.decision_steps import Instruction
from tests.any_record import made, values
from tests.private_name import under_private_name

MODULES = [
    *("answer", "commands", "envelope", "inspections", "plain", "readings", "records", "session"),
    "training",
]
MODULES = [f"protocol.{name}" for name in MODULES]
MODULES += ["instrument.device", "training.decision_steps", "metrics"]
OURS = [importlib.import_module(f"gpudash.{name}") for name in MODULES]
PLAIN = under_private_name(*MODULES)
THERE = dict(zip(MODULES, PLAIN, strict=True))
plain, COMMANDS = THERE["protocol.records"], THERE["protocol.commands"].AnyCommand
KINDS = {
    name: (kind, getattr(there, name))
    for here, there in zip(OURS, PLAIN, strict=True)
    for name, kind in vars(here).items()
    if isinstance(kind, type)
    and issubclass(kind, msgspec.Struct)
    and kind.__module__ == here.__name__
}
"""Each class of records with msgspec, and without."""


def test_there_are_records():
    assert {"State", "Blocks", "Block", "Envelope", "DeviceMemory", "Instruction"} <= set(KINDS)


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=settings.default.max_examples // 16)  # for each of some eighty
@given(data=st.data())
def test_each_encodes_and_decodes_as_with_msgspec(name, data):
    ours, theirs = KINDS[name]
    record = data.draw(made(ours))
    read = plain.Decoder(theirs).decode(records.encode(record))
    assert type(read) is theirs
    assert records.Decoder(ours).decode(plain.encode(read)) == record
    assert repr(read) == repr(record)
    assert plain.Decoder(theirs).decode(plain.encode(read)) == read


@given(record=values(AnyCommand))
def test_a_command_is_read_by_its_tag(record):
    read = plain.Decoder(COMMANDS).decode(records.encode(record))
    assert (type(read).__name__, repr(read)) == (type(record).__name__, repr(record))


@given(record=made(Instruction))
def test_what_ranks_tell_each_other_is_the_same(record):
    theirs = KINDS["Instruction"][1]
    assert Instruction.decode(theirs.decode(record.encode()).encode()) == record


BAD = [
    "",
    "{",
    "[]",
    "3",
    "null",
    "NaN",
    "[" * 100_000,
    "{}",
    '{"type":"Nothing","id":1}',
    '{"type":"Pause"}',
    '{"type":"Pause","id":"1"}',
    '{"type":"Pause","id":1.5}',
    '{"type":"Pause","id":2.0}',
    '{"type":"Pause","id":null}',
    '{"type":"Pause","id":true}',
    '{"type":"Change","id":1,"settings":[]}',
    '{"type":"Change","id":1,"settings":{"a":1}}',
    '{"type":"Blocks","id":1,"run":1,"blocks":[{"number":1}]}',
    '{"type":"Blocks","id":1,"run":1,"blocks":{}}',
    '{"type":"Slow","part":"host"}',
]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_command_is_refused_by_both(text):
    for decoder in (records.Decoder(AnyCommand), plain.Decoder(COMMANDS)):
        with pytest.raises((ValueError, RecursionError)):
            decoder.decode(text.encode())
    with pytest.raises(UnicodeDecodeError):
        plain.Decoder(COMMANDS).decode(b"\xff")


ALSO = [
    '{"type":"Pause","id":1,"at_step":null,"more":[1]}',
    '{"id":1,"type":"Pause"}',
    '{"type":"Blocks","id":1,"run":1,"blocks":[{"number":1,"changes":{},"min_steps":1,"min_s":1}]}',
]


@pytest.mark.parametrize("text", ALSO)
def test_what_a_newer_dashboard_sends_is_read_by_both(text):
    ours = records.Decoder(AnyCommand).decode(text)
    assert repr(plain.Decoder(COMMANDS).decode(text)) == repr(ours)


# ── as Python objects ───────────────────────────────────────────────────────────────────


@pytest.fixture(params=[records, plain], ids=["msgspec", "plain"])
def module(request):
    return request.param


@pytest.fixture
def classes(module):
    return {name: both[module is plain] for name, both in KINDS.items()}


def test_records_are_frozen_and_compared_by_value(classes):
    slow, same = (classes["Slow"](part="host", ms=1.0) for _ in range(2))
    assert slow == same
    assert hash(slow) == hash(same)
    assert slow != classes["Slow"](part="host", ms=2.0)
    assert slow != "host"
    assert repr(slow) == "Slow(part='host', ms=1.0)"
    with pytest.raises(AttributeError):
        slow.ms = 2.0
    with pytest.raises(AttributeError):
        del slow.ms


def test_replace_changes_fields_and_leaves_the_record(classes, module):
    slow = classes["Slow"](part="host", ms=1.0)
    assert module.replace(slow, ms=2.0) == classes["Slow"](part="host", ms=2.0)
    assert slow.ms == 1.0
    with pytest.raises(TypeError):
        module.replace(slow, pace=2.0)


@pytest.mark.parametrize(
    ("kind", "values", "named"),
    [
        ("Slow", ("host", 1.0), {}),
        ("Slow", (), {"part": "host"}),
        ("Slow", (), {"part": "host", "ms": 1, "pace": 1}),
        ("CodeLine", ("f", 1, "main", 2, 3), {}),
        ("CodeLine", ("f", 1, "main", 2), {"file": "f"}),
    ],
)
def test_each_field_is_given_once_and_by_name_if_it_has_no_order(classes, kind, values, named):
    with pytest.raises(TypeError):
        classes[kind](*values, **named)


def test_some_records_take_values_in_order(classes):
    assert classes["CodeLine"]("f", 1, "main", 2) == classes["CodeLine"](
        file="f", line=1, function="main", count=2
    )


def test_no_two_records_share_an_empty_default(classes):
    one, other = (classes["State"](at_s=0.0, phase="starting") for _ in range(2))
    one.settings["a"] = "b"
    assert other.settings == {}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_null(classes, module, value):
    assert module.encode(classes["Slow"](part="host", ms=value)) == b'{"part":"host","ms":null}'


def test_what_is_no_text_is_a_replacement_character():
    found = plain.encode([{"tr\udcff.py": "\ud800 \udfff"}, "🦆"])
    assert found.decode() == '[{"tr\ufffd.py":"\ufffd \ufffd"},"🦆"]'
