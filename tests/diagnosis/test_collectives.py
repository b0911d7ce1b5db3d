"""A step's collectives are described by their bytes, exposed share and bandwidth."""

import msgspec
import pytest

from gpudash.diagnosis.causes import facts, table
from gpudash.diagnosis.causes.cause import Measured
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.protocol.training import Lever
from gpudash.snapshot import RankRow, Snapshot

changed = msgspec.structs.replace


def told(row: RankRow, **values: float | None) -> RankRow:
    found = row.values | {f"{name}_ms": ms for name, ms in values.items()}
    return changed(row, values={name: ms for name, ms in found.items() if ms is not None})


KNOWN = {"collective_bus_mib": 170.7, "collective_ms": 0.84, "communication_ms": 0.56}
ROW = RankRow(rank=0, values=KNOWN)
TWO = Snapshot(ranks=(ROW, changed(told(ROW, collective=1.2), rank=1)), bus_gb_s=287.0)


def line_of(snapshot):
    return "".join(facts.told(("{collectives}",), Measured(snapshot, RecentStep())))


EXACT = {"collective_bus_mib": 1003.6e6 / 2**20, "collective_ms": 8.0, "communication_ms": 5.0}
"""62.5 % and 125.45 GB/s are rounded."""
SENDS = "each rank sends 171 MiB a step"
SAID = {
    "the rank that waits least shows the link's time": (
        TWO,
        f"{SENDS} in 0.84 ms, 67 % of it exposed, 213 of 287 measured GB/s on the bus",
    ),
    "without a time there is no rate": (
        changed(TWO, ranks=(told(ROW, collective=None), RankRow(rank=1))),
        SENDS,
    ),
    "a measured part that is exposed comes before the phase with its copies": (
        changed(TWO, ranks=(told(ROW, collective_exposed=0.21), RankRow(rank=1))),
        f"{SENDS} in 0.84 ms, 25 % of it exposed, 213 of 287 measured GB/s on the bus",
    ),
    "what was not measured is left out": (
        changed(TWO, bus_gb_s=None, ranks=(told(ROW, communication=None), RankRow(rank=1))),
        f"{SENDS} in 0.84 ms, 213 GB/s on the bus",
    ),
    "a wait for a late rank is no more than all of it": (
        changed(TWO, ranks=(told(ROW, communication=5.0), changed(ROW, rank=1))),
        f"{SENDS} in 0.84 ms, 100 % of it exposed, 213 of 287 measured GB/s on the bus",
    ),
    "shares and bandwidth are exact, of the rank with the shortest time": (
        Snapshot(
            ranks=(
                RankRow(rank=1, values=EXACT | {"collective_ms": 9.0}),
                RankRow(rank=0, values=EXACT),
                RankRow(rank=2, values={"collective_bus_mib": 957.0}),
            )
        ),
        "each rank sends 957 MiB a step in 8.00 ms, 62 % of it exposed, 125 GB/s on the bus",
    ),
    "nothing is said without ranks": (Snapshot(), ""),
    "nor without measurements": (Snapshot(ranks=(RankRow(rank=0), RankRow(rank=1))), ""),
}


@pytest.mark.parametrize(("snapshot", "line"), SAID.values(), ids=SAID)
def test_what_is_said_of_collectives(snapshot, line):
    assert line_of(snapshot) == line


def test_averages_of_each_pass_are_told_where_one_could_do():
    lever = Lever(
        name="grad_sync", kind="choice", default="each", summary="", source="", share=0.75
    )
    several = Snapshot(levers=(lever,), settings={"grad_sync": "each"})
    (averaged,) = facts.told((table.AVERAGED,), Measured(several, RecentStep()))
    assert averaged == "gradients are averaged in each of 4 backward passes a step"
    once = changed(several, settings={"grad_sync": "last"})
    one_pass = changed(several, levers=(changed(lever, refusal="a step has one backward pass"),))
    for other in (once, one_pass, Snapshot()):
        assert not [*facts.told((table.AVERAGED,), Measured(other, RecentStep()))]
