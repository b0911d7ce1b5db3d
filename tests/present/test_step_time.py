"""The parts of the step time, and their columns: they add up, whatever was measured."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.present.step_time import (
    EIGHTHS,
    IDLE,
    blocks_of,
    column_of,
    columns_of,
    legend,
    parts_of,
    spent,
    top_ms,
)
from gpudash.protocol.training import Phase
from gpudash.snapshot import Marker, Series, Snapshot
from gpudash.worker.phases import phases
from tests.tui.fake_engine import H200, training

SNAPSHOT = msgspec.structs.replace(training(), phases=phases("encode"))
PARTS = parts_of(SNAPSHOT)
INKS = [part.ink for part in PARTS]
MS = st.none() | st.floats(0, 1e12)


def shown(parts_ms):
    """Label → time of what a step was spent on."""
    return {part.label: ms for part, ms in zip(PARTS, parts_ms, strict=True) if ms}


def step_of(step_ms, overlap_ms=None, data_ms=0.0, **phases_ms):
    times = (phases_ms.get(part.metric.removesuffix("_ms")) for part in PARTS[1:-2])
    return spent(PARTS, step_ms, overlap_ms, data_ms, *times)


def words(cells):
    return "  ".join("".join(text for text, _ in cell.parts) for cell in cells)


# ── what the time was spent on ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("what", "step", "seen", "beside"),
    [
        ("what runs beside the training is hidden",
         step_of(6.0, overlap_ms=5.0, prepare=5.0, forward=2.0, backward=4.0),
         {"forward": 2.0, "backward": 4.0}, {"encode": 5.0}),
        ("preparing longer than the training is shown in part",
         step_of(8.0, overlap_ms=3.0, copy=2.0, prepare=6.0, forward=3.0),
         {"copy": 1.25, "encode": 3.75, "forward": 3.0}, {"copy": 0.75, "encode": 2.25}),
        ("waiting for data counts where nothing covers it",
         step_of(10.0, data_ms=3.0, forward=6.0), {"data": 3.0, "forward": 6.0, "idle": 1.0}, {}),
        ("and no more than that",
         step_of(10.0, data_ms=3.0, forward=9.0), {"data": 1.0, "forward": 9.0}, {}),
        ("where no phase was measured there is the step alone",
         step_of(10.0, data_ms=3.0), {"step": 10.0}, {}),
    ],
)  # fmt: skip
def test_a_step_was_spent_on(what, step, seen, beside):
    assert shown(step.shown) == pytest.approx(seen), what
    assert shown(step.hidden) == pytest.approx(beside), what


def test_a_training_without_phases_has_the_step_alone():
    assert parts_of(Snapshot())[1:-1] == (PARTS[-2],)


def test_without_a_step_there_is_no_column():
    assert step_of(None, forward=1.0) is None
    series = Series(at_s=(0.5,), values={"forward_ms": (1.0,)})
    ((cell,),) = columns_of(series, PARTS, [slice(0, 1)], 1.0, 1)
    assert cell[0] == " "


def test_a_phase_of_the_sources_own_has_a_hue_and_a_short_name():
    own = (Phase(name="all_reduce", label="all-reduce", lane="train"),)
    part = parts_of(msgspec.structs.replace(SNAPSHOT, phases=own))[1]
    assert (part.metric, part.ink, part.short) == ("all_reduce_ms", "line-1", "all")


def test_only_a_gpu_is_idle():
    assert [parts_of(Snapshot(device=device))[-1].label for device in (H200, None)] == [
        "idle",
        "other",
    ]


@given(MS, MS, MS, st.lists(MS, min_size=6, max_size=6))
def test_nothing_is_lost_and_nothing_is_negative(step_ms, overlap_ms, data_ms, phases_ms):
    step = spent(PARTS, step_ms, overlap_ms, data_ms, *phases_ms)
    if step is None:
        assert step_ms is None
        return
    assert all(ms >= 0 for ms in (*step.shown, *step.hidden))
    assert sum(step.shown) >= step_ms * (1 - 1e-9)
    if any(ms is not None for ms in phases_ms):
        for index, ms in enumerate(phases_ms, start=1):
            assert step.shown[index] + step.hidden[index] == pytest.approx(ms or 0.0)


# ── columns ─────────────────────────────────────────────────────────────────────────────


@given(
    st.lists(st.floats(0, 1e12), min_size=len(PARTS), max_size=len(PARTS)),
    st.floats(1e-6, 1e12),
    st.integers(1, 50),
)
def test_a_columns_parts_add_up_to_its_height_and_never_exceed_the_rows(times, top, rows):
    step = spent(PARTS, 1.0, None, 0.0, 1.0)._replace(shown=tuple(times))
    column = column_of(INKS, step, top, rows)
    heights = [height for _, height in column]
    assert all(height > 0 for height in heights)
    assert sum(heights) == round(min(sum(times) / top, 1.0) * rows * EIGHTHS)
    blocks = blocks_of(column, rows)
    assert len(blocks) == rows
    assert all(len(block[0]) == 1 for block in blocks)


@pytest.mark.parametrize(
    ("column", "drawn"),
    [
        ((("line-3", 4),), [(" ", ""), ("▄", "line-3")]),
        ((("line-3", 4), ("line-4", 6)), [("▂", "line-4"), ("▄", "line-3/line-4")]),
        ((("line-3", 4), ("line-5", 1), ("line-4", 3)), [(" ", ""), ("▅", "line-3/line-4")]),
        ((("line-3", 8), (IDLE, 8)), [("·", IDLE), ("█", "line-3")]),
        ((("line-3", 3), (IDLE, 6)), [(" ", ""), ("▃", "line-3")]),
    ],
)
def test_a_cell_has_the_two_largest_of_what_is_in_it(column, drawn):
    assert list(blocks_of(column, 2)) == drawn


# ── scale ───────────────────────────────────────────────────────────────────────────────


WARM = [3.0] * 20
CHANGED = [Marker(kind="change", at_s=10.0, label="on")]
RARE = [3.0] * 99 + [50.0]
HANG_S = 30.0


@pytest.mark.parametrize(
    ("what", "steps_ms", "how", "top"),
    [
        ("the first steps of a run do not set it", [18.0, *WARM], {}, 3.0),
        ("nor do those after a change",
         [*[3.0] * 10, *[None] * 10, *[18.0] * 4, *WARM], {"markers": CHANGED}, 3.0),
        ("unless there are no others", [18.0] * 3, {}, 20.0),
        ("a rare slow step is cut", RARE, {}, 3.0),
        ("but not what steps take now", RARE, {"now_ms": 49.0}, 50.0),
        ("a hang counts as one step", [*[6.0] * 30, *[1000 * HANG_S] * 60, *[6.0] * 10],
         {"rates": (*[160.0] * 30, *[1 / HANG_S] * 60, *[160.0] * 10)}, 6.0),
        ("steps that are all long set it", [*[6.0] * 60, *[4000.0] * 40],
         {"rates": (*[1000 / 6.0] * 60, *[1 / 4.0] * 40)}, 4000.0),
        ("without a step there is one too", [], {}, 1.0),
        ("also if none was measured", [None, None], {}, 1.0),
        ("or none can be", [float("inf")], {}, 1.0),
    ],
)  # fmt: skip
def test_the_scale_of_step_times(what, steps_ms, how, top):
    at_s = tuple(0.5 * (tick + 1) for tick in range(len(steps_ms)))
    measured = {"step_ms": tuple(steps_ms), "steps_per_s": how.get("rates", ())}
    series = Series(at_s=at_s, values=measured)
    every = [slice(0, len(steps_ms))]
    assert top_ms(series, every, how.get("markers", ()), how.get("now_ms")) == top, what


# ── legend ──────────────────────────────────────────────────────────────────────────────


def test_the_legend_has_the_longest_form_that_fits():
    step = step_of(6.83, overlap_ms=5.58, prepare=5.58, forward=2.7, backward=3.97, optimizer=0.16)
    full = "█ forward 2.70  █ backward 3.97  █ optimizer 0.16  · hidden by overlap: encode 5.58"
    short = "█ fwd 2.70  █ bwd 3.97  █ opt 0.16  · hidden: enc 5.58"
    for columns, shown in (
        (200, full),
        (len(full), full),
        (len(full) - 1, short),
        (len(short) - 1, "█ fwd 2.70  █ bwd 3.97  █ opt 0.16"),
        (30, "█ fwd 2.70  █ bwd 3.97"),  # the shortest goes first
        (12, "█ bwd 3.97"),
        (0, ""),
    ):
        assert words(legend(PARTS, step, columns)) == shown
