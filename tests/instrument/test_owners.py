"""Owners of memory at its peak, from handwritten snapshots."""

from typing import Any

import pytest

from gpudash.instrument.owners import MIB, MOST_OWNERS, Allocation, at_the_peak, owners
from gpudash.protocol.inspections import Owner

TORCH = "/env/torch/"
A, B, C, D = 0x1000, 0x2000, 0x3000, 0x4000


def frame(file: str, line: int, name: str = "step") -> dict[str, Any]:
    return {"filename": file, "line": line, "name": name}


def alloc(address: int, size: int, *frames: dict[str, Any]) -> dict[str, Any]:
    return {"action": "alloc", "addr": address, "size": size, "frames": list(frames)}


def free(address: int, size: int) -> dict[str, Any]:
    return {"action": "free_requested", "addr": address, "size": size, "frames": []}


def oom(size: int, *frames: dict[str, Any]) -> dict[str, Any]:
    return {"action": "oom", "size": size, "device_free": 0, "frames": list(frames)}


def snapshot(*events: dict[str, Any], held: dict[int, int] | None = None) -> dict[str, Any]:
    """Return a snapshot with a segment for each allocation held now, half of it unused."""
    segments = [
        {
            "device": 0,
            "address": address - 512,
            "blocks": [
                {"size": 512, "requested_size": 0, "state": "inactive"},
                {"size": size, "requested_size": size, "state": "active_allocated"},
            ],
        }
        for address, size in (held or {}).items()
    ]
    return {"segments": segments, "device_traces": [list(events)]}


def peak(*events: dict[str, Any], held: dict[int, int] | None = None) -> dict[int, int]:
    return {one.address: one.bytes for one in at_the_peak(snapshot(*events, held=held), 0)}


STEP = (alloc(B, 20), alloc(C, 30), free(B, 20), alloc(D, 5), free(C, 30), free(D, 5))


@pytest.mark.parametrize(
    ("events", "held", "expected"),
    [
        ((), {}, {}),
        ((), {A: 10}, {A: 10}),
        (STEP, {A: 10}, {A: 10, B: 20, C: 30}),
        ((free(A, 10), *STEP), {}, {B: 20, C: 30}),
        ((free(A, 90), *STEP), {}, {A: 90}),
        ((*STEP, alloc(A, 60)), {A: 60}, {A: 60}),
        # an address is given out again
        ((alloc(B, 20), free(B, 20), alloc(B, 40)), {A: 1, B: 40}, {A: 1, B: 40}),
        # what failed counts where it was asked for
        ((alloc(B, 20), oom(90), free(B, 20)), {A: 10}, {A: 10, B: 20, 0: 90}),
        # … and was not held afterwards
        ((oom(30), alloc(B, 20), alloc(C, 30)), {B: 20, C: 30}, {B: 20, C: 30}),
    ],
    ids=[
        "nothing",
        "nothing recorded",
        "in the middle of a step",
        "beyond what was freed before",
        "at the begin",
        "at the end",
        "reused",
        "out of memory",
        "out of memory once",
    ],
)
def test_allocations_held_at_the_peak(
    events: tuple[dict[str, Any], ...], held: dict[int, int], expected: dict[int, int]
):
    assert peak(*events, held=held) == expected


def test_other_devices_are_left_out():
    found = snapshot(alloc(B, 20), held={A: 10, B: 20})
    found["segments"][0]["device"] = 1
    assert {one.address for one in at_the_peak(found, 0)} == {B}
    assert {one.address for one in at_the_peak(found, 1)} == {A}


def test_allocations_from_before_and_those_freed_later_are_marked():
    found = {one.address: one for one in at_the_peak(snapshot(*STEP, held={A: 10}), 0)}
    assert found[A].frames is None
    assert found[C].frames == []
    assert [found[one].was_freed for one in (A, B, C)] == [False, True, True]


def named(file: str, line: int, use: str, mib: float, count: int, function: str = "step") -> Owner:
    return Owner(file=file, line=line, function=function, use=use, mib=mib, count=count)


def test_owners_are_the_nearest_lines_outside_torch_the_largest_first():
    inner, train = frame(f"{TORCH}nn/linear.py", 7, "forward"), frame("/home/train.py", 42)
    model = frame("/home/model.py", 9)
    found = owners(
        [
            Allocation(A, 10 * MIB, [inner, model, train], was_freed=True),
            Allocation(B, 10 * MIB, [model, train], was_freed=True),
            Allocation(C, 30 * MIB, [inner, train]),
            Allocation(D, 5 * MIB, [inner]),
        ],
        {},
        (TORCH,),
    )
    assert found == (
        named("/home/train.py", 42, "other", 30.0, 1),
        named("/home/model.py", 9, "activations", 20.0, 2),
        named(f"{TORCH}nn/linear.py", 7, "other", 5.0, 1, "forward"),
    )


def test_a_known_use_goes_before_a_derived_one():
    line = frame("/home/train.py", 42)
    allocations = [
        Allocation(A, 4 * MIB),
        Allocation(B, 3 * MIB, [line], was_freed=True),
        Allocation(C, 2 * MIB),
        Allocation(D, MIB, []),
    ]
    found = owners(allocations, {A: "weights", B: "gradients"}, (TORCH,))
    assert [(one.use, one.file) for one in found] == [
        ("weights", ""),
        ("gradients", "/home/train.py"),
        ("from before", ""),
        ("backward pass", ""),
    ]


def test_small_owners_are_left_out():
    many = [Allocation(n, n, [frame("/home/train.py", n)]) for n in range(1, 100)]
    found = owners(many, {}, (TORCH,))
    assert [one.line for one in found] == list(range(99, 99 - MOST_OWNERS, -1))
