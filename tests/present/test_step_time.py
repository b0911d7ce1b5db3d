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


def shown(step):
    """Label → time of what a step was spent on."""
    return {part.label: ms for part, ms in zip(PARTS, step.shown, strict=True) if ms}


def hidden(step):
    return {part.label: ms for part, ms in zip(PARTS, step.hidden, strict=True) if ms}


def step_of(step_ms, overlap_ms=None, data_ms=0.0, **phases_ms):
    times = (phases_ms.get(part.metric.removesuffix("_ms")) for part in PARTS[1:-2])
    return spent(PARTS, step_ms, overlap_ms, data_ms, *times)


def words(cells):
    return "  ".join("".join(text for text, _ in cell.parts) for cell in cells)


# ── what the time was spent on ──────────────────────────────────────────────────────────


def test_what_runs_beside_the_training_is_hidden():
    step = step_of(6.0, overlap_ms=5.0, prepare=5.0, forward=2.0, backward=4.0)
    assert shown(step) == {"forward": 2.0, "backward": 4.0}
    assert hidden(step) == {"encode": 5.0}


def test_preparing_longer_than_the_training_is_shown_in_part():
    step = step_of(8.0, overlap_ms=3.0, copy=2.0, prepare=6.0, forward=3.0)
    assert shown(step) == pytest.approx({"copy": 1.25, "encode": 3.75, "forward": 3.0})
    assert hidden(step) == pytest.approx({"copy": 0.75, "encode": 2.25})


def test_waiting_for_data_counts_where_nothing_covers_it():
    assert shown(step_of(10.0, data_ms=3.0, forward=6.0)) == {
        "data": 3.0,
        "forward": 6.0,
        "idle": 1.0,
    }
    assert shown(step_of(10.0, data_ms=3.0, forward=9.0)) == {"data": 1.0, "forward": 9.0}


def test_where_no_phase_was_measured_there_is_the_step_alone():
    assert shown(step_of(10.0, data_ms=3.0)) == {"step": 10.0}
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


def scale(steps_ms, markers=(), now_ms=None):
    series = Series(
        at_s=tuple(0.5 * (tick + 1) for tick in range(len(steps_ms))),
        values={"step_ms": tuple(steps_ms)},
    )
    return top_ms(series, [slice(0, len(steps_ms))], markers, now_ms)


def test_the_first_steps_of_a_run_and_after_a_change_do_not_set_the_scale():
    warm = [3.0] * 20
    assert scale([18.0, *warm]) == 3.0
    assert (
        scale(
            [3.0] * 10 + [None] * 10 + [18.0] * 4 + warm,
            [Marker(kind="change", at_s=10.0, label="on")],
        )
        == 3.0
    )


def test_first_steps_set_the_scale_if_there_are_no_others():
    assert scale([18.0] * 3) == 20.0


def test_a_rare_slow_step_is_cut_but_not_what_steps_take_now():
    steps_ms = [3.0] * 99 + [50.0]
    assert scale(steps_ms) == 3.0
    assert scale(steps_ms, now_ms=49.0) == 50.0


def test_a_hang_counts_as_one_step():
    hang_s, ticks = 30.0, 60
    series = Series(
        at_s=tuple(0.5 * (tick + 1) for tick in range(ticks + 40)),
        values={
            "step_ms": (*[6.0] * 30, *[1000 * hang_s] * ticks, *[6.0] * 10),
            "steps_per_s": (*[160.0] * 30, *[1 / hang_s] * ticks, *[160.0] * 10),
        },
    )
    assert top_ms(series, [slice(0, ticks + 40)], (), None) == 6.0


def test_steps_that_are_all_long_set_the_scale():
    steps_ms = (*[6.0] * 60, *[4000.0] * 40)
    series = Series(
        at_s=tuple(0.5 * (tick + 1) for tick in range(100)),
        values={"step_ms": steps_ms, "steps_per_s": tuple(1000 / ms for ms in steps_ms)},
    )
    assert top_ms(series, [slice(0, 100)], (), None) == 4000.0


def test_without_a_step_there_is_a_scale_too():
    assert scale([]) == scale([None, None]) == scale([float("inf")]) == 1.0


# ── legend ──────────────────────────────────────────────────────────────────────────────


def test_the_legend_has_the_longest_form_that_fits():
    step = step_of(6.83, overlap_ms=5.58, prepare=5.58, forward=2.7, backward=3.97, optimizer=0.16)
    full = "█ forward 2.70  █ backward 3.97  █ optimizer 0.16  · hidden by overlap: encode 5.58"
    assert words(legend(PARTS, step, 200)) == full
    assert words(legend(PARTS, step, len(full))) == full
    short = "█ fwd 2.70  █ bwd 3.97  █ opt 0.16  · hidden: enc 5.58"
    assert words(legend(PARTS, step, len(full) - 1)) == short
    assert words(legend(PARTS, step, len(short) - 1)) == "█ fwd 2.70  █ bwd 3.97  █ opt 0.16"
    assert words(legend(PARTS, step, 30)) == "█ fwd 2.70  █ bwd 3.97"  # the shortest goes first
    assert words(legend(PARTS, step, 12)) == "█ bwd 3.97"
    assert words(legend(PARTS, step, 0)) == ""
