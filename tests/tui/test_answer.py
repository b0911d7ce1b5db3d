"""The answer strip: what it shows at each size, and its buttons."""

from contextlib import asynccontextmanager

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.app import App

from gpudash.diagnosis.headline import Headline
from gpudash.diagnosis.lanes import lane
from gpudash.protocol.answer import Part
from gpudash.protocol.readings import HostReading, Job, OtherJobs
from gpudash.snapshot import Marker, RankRow, Snapshot
from gpudash.tui.widgets.answer import AnswerStrip, printed, spread, start_stages
from tests.diagnosis.trainings import (
    CPU,
    ask,
    changed,
    cpu_step,
    gpu_step,
    launching,
    measured,
    two_streams,
)
from tests.tui.comparisons import comparing
from tests.tui.fake_engine import result

JOBS = OtherJobs(
    at_s=0.0,
    used_cores=1.2,
    cores=2,
    busiest=(Job(pid=42, name="stress", cores=0.9), Job(pid=43, name="train.py", cores=0.3)),
)
CROWDED = {"core_wait_pct": 48.0, "cpu_pct": 180.0}
STARTING = Snapshot(status="loading torch", elapsed_s=1.9, workload="encdec")


class Alone(App[None]):
    """A strip without a dashboard; it notes which actions were run."""

    def __init__(self, rows: int, *, framed: bool) -> None:
        super().__init__()
        self.rows, self.framed, self.ran = rows, framed, []

    def compose(self):
        strip = AnswerStrip(id="answer")
        strip.framed, strip.styles.height = self.framed, self.rows
        yield strip

    def action_try_it(self) -> None:
        self.ran.append("try_it")

    def action_why(self) -> None:
        self.ran.append("why")


@asynccontextmanager
async def strip(snapshot, width, height=6, *, framed=True, last_s=None, before=None):
    app = Alone(height, framed=framed)
    async with app.run_test(size=(width, height)) as pilot:
        widget = app.query_one(AnswerStrip)
        widget.show(ask(snapshot, before), snapshot, last_s)
        await pilot.pause()
        yield widget, pilot


async def shown(snapshot, width, height=6, **how):
    async with strip(snapshot, width, height, **how) as (widget, _):
        rows = [widget.render_line(y).text for y in range(height)]
    assert all(cell_len(row) == width for row in rows)
    return rows


async def test_at_120_columns_answer_evidence_lanes_and_keys_are_in_sight():
    rows = await shown(two_streams(), 120)
    assert "GPU-bound" in rows[0]
    assert "x try precision=bf16: -3 to +101 % by A/B" in rows[0]
    assert "e why" in rows[0]
    assert "the GPU is busy 100 % of 6.83 ms; encode runs beside training 82 % of it" in rows[1]
    assert [row[2:8].strip() for row in rows[2:5]] == ["train", "encode", "host"]
    assert "forward 2.72" in rows[2]
    assert "6.83 ms, the step" in rows[2]
    assert "1.25 idle" in rows[3]
    assert "4.22 ahead · data 0" in rows[4]


async def test_at_80_columns_it_needs_four_rows_and_no_frame():
    rows = await shown(two_streams(), 80, 4, framed=False)
    assert rows[0].startswith(" GPU-BOUND: busy 100 % of 6.83 ms ")
    assert rows[0].rstrip().endswith("x try precision=bf16: -3 to +101 % (A/B)")
    assert [row[1:7].strip() for row in rows[1:]] == ["train", "encode", "host"]


async def test_at_200_columns_what_to_try_stands_beside_the_lanes():
    rows = await shown(two_streams(), 200)
    assert "x precision=bf16" in rows[2]
    assert "-3 to +101 %; half the bits for" in rows[2]
    assert "channels_last=on" in rows[3]


async def test_remaining_rows_show_the_proposals():
    rows = await shown(cpu_step(), 80)
    assert "  precision=bf16    half the bits for cores and memory" in rows[3]
    assert "channels_last=on" in rows[4]


async def test_without_a_frame_evidence_comes_before_the_proposals_that_the_title_does_not_have():
    rows = await shown(cpu_step(), 80, 4, framed=False)
    assert "x try" not in rows[0]  # nothing is known of them
    assert rows[1].startswith(" CPU")
    assert rows[2].strip().startswith("precision=bf16")


def without_a_b(**values):
    """A training of which nothing can be compared, so that nothing is proposed."""
    return changed(measured(**values), can=("levers",))


async def test_remaining_rows_show_more_evidence_below_the_lanes():
    others = without_a_b(device=CPU, core_wait_pct=48.0, step_ms=320.0, forward_ms=200.0)
    rows = await shown(others, 120)
    assert "waits for a core 48 % of the time" in rows[1]
    assert rows[2][2:5] == "CPU"
    assert "on an idle machine" in rows[3]


async def test_without_a_frame_a_title_that_goes_on_needs_no_colon():
    profiling = msgspec.structs.replace(gpu_step(), profiling=True)
    rows = await shown(profiling, 80, 4, framed=False, before=ask(gpu_step()))
    assert rows[0].strip().startswith("profiling the next steps … before that: GPU-bound")


async def test_without_a_frame_a_title_with_a_colon_needs_no_second_one():
    rows = await shown(comparing(12), 80, 4, framed=False, before=ask(gpu_step()))
    title = "an A/B is running: pipelined on or off"
    assert rows[0].strip().startswith(f"{title}; before that: GPU-bound")


async def test_a_lane_ends_with_an_edge():
    rows = await shown(two_streams(), 120)
    assert "▏6.83 ms, the step" in rows[2]
    assert "·▏1.25 idle" in rows[3]


async def test_without_a_frame_what_does_not_fit_beside_the_title_stands_below():
    others = without_a_b(device=CPU, core_wait_pct=48.0, step_ms=320.0, forward_ms=200.0)
    rows = await shown(others, 80, 4, framed=False)
    assert "the training uses" in rows[2]
    assert "no setting helps: the machine is full" in rows[3]


async def test_lanes_share_one_scale_so_that_a_column_is_one_moment():
    rows = await shown(gpu_step(), 120)
    host = rows[3]
    assert host.index("·") - host.index("▏") == pytest.approx(0.3 * (120 - 36), abs=3)
    begins = {row.index("▏") for row in rows[2:4]}
    assert len(begins) == 1


@pytest.mark.parametrize("snapshot", [two_streams(), gpu_step(), cpu_step(), STARTING, Snapshot()])
@pytest.mark.parametrize("framed", [True, False])
@pytest.mark.parametrize("size", [(1, 1), (4, 3), (20, 5), (40, 6), (400, 20)])
async def test_any_size_is_painted(snapshot, framed, size):
    rows = await shown(snapshot, *size, framed=framed)
    assert not any("Error" in row for row in rows)


async def test_a_start_shows_its_stage_and_the_length_of_the_last_start():
    rows = await shown(STARTING, 120, last_s=3.2)
    assert "about 3 s here last time" in rows[0]
    assert "✓ worker  ◌ torch 2 s …  · model  · first step" in rows[1]
    assert "levers work already" in rows[2]
    assert "⏎ values  w another workload  ? every key" in rows[3]


async def test_a_start_shows_the_requested_levers_that_fit_uncut():
    asked = {"batch_size": "4096", "data": "resident"}
    for width, said in (
        (60, "asked for: batch_size=4096  data=resident"),
        (30, "asked for: batch_size=4096"),
    ):
        rows = await shown(changed(STARTING, requested=asked), width)
        assert rows[4].strip("┃ ") == said


async def test_a_start_of_a_run_without_levers_promises_none():
    rows = await shown(changed(STARTING, can=()), 80)
    assert "levers" not in "".join(rows)


async def test_while_measuring_the_strip_names_the_row_and_the_last_answer():
    rows = (result(1, "pipelined=off", 300.0), result(2, "pipelined=on", 0.1, live=True))
    on_cpu = changed(cpu_step(), steps_since_break=3, results=rows)
    seen = "".join(await shown(on_cpu, 120))
    assert "row 2: pipelined=on" in seen
    assert "row 1 before it: 2,400 samples/s, step p50 3.33 ms" in seen


@pytest.mark.parametrize(
    ("snapshot", "now"),
    [
        (Snapshot(), "worker"),
        (STARTING, "torch"),
        (changed(STARTING, status="building encdec on NVIDIA H200"), "model"),
        (changed(STARTING, state="training", status="training"), "first step"),
    ],
)
def test_a_start_shows_the_stage_that_goes_on(snapshot, now):
    going = [stage for stage in start_stages(snapshot) if stage.startswith("◌")]
    assert len(going) == 1
    assert going[0].startswith(f"◌ {now}")


def test_a_restart_counts_its_own_seconds():
    again = changed(STARTING, elapsed_s=60.0, markers=(Marker(at_s=57.0, label="restart"),))
    assert "◌ torch 3 s …" in start_stages(again)


async def test_its_keys_are_buttons():
    async with strip(two_streams(), 120) as (widget, pilot):
        top = widget.render_line(0).text
        await pilot.click(widget, offset=(top.index("x try"), 0))
        await pilot.click(widget, offset=(top.index("e why"), 0))
        await pilot.pause()
        assert pilot.app.ran == ["try_it", "why"]


async def test_without_a_frame_the_title_line_holds_the_button():
    async with strip(launching(), 80, 4, framed=False) as (widget, pilot):
        await pilot.click(widget, offset=(widget.render_line(0).text.index("x try"), 0))
        await pilot.click(widget, offset=(3, 0))
        await pilot.pause()
        assert pilot.app.ran == ["try_it", "why"]


async def test_without_an_answer_there_is_nothing_to_try():
    async with strip(STARTING, 80, 4, framed=False) as (widget, pilot):
        await pilot.click(widget, offset=(79, 0))
        await pilot.pause()
        assert pilot.app.ran == []


async def test_the_same_answer_is_painted_once(monkeypatch):
    async with strip(two_streams(), 120) as (widget, _):
        painted = []
        monkeypatch.setattr(widget, "repaint", lambda: painted.append(1))
        widget.show(ask(two_streams()), two_streams())
        assert painted == []
        widget.show(Headline(kind="paused", title="paused"), two_streams())
        assert painted == [1]


@given(
    st.lists(st.floats(0, 1e5), max_size=6),
    st.floats(1e-6, 1e5),
    st.integers(0, 400),
)
def test_the_columns_of_a_lane_are_exactly_its_width(parts_ms, step_ms, width):
    parts = [Part("forward", "fwd", ms, "fill-3") for ms in parts_ms]
    columns = [count for _, count in spread(lane("GPU", parts, step_ms, "idle"), step_ms, width)]
    assert sum(columns) == width
    assert min(columns) >= 0


@given(st.floats(0, 1e12), st.integers(0, 60))
def test_a_part_is_printed_in_exactly_its_columns_and_never_half_a_number(ms, columns):
    text = printed(Part("forward", "fwd", ms, "fill-3"), columns)
    assert cell_len(text) == columns
    whole = printed(Part("forward", "fwd", ms, "fill-3"), 60).split()[-1]
    assert not any(c.isdigit() for c in text) or whole in text


async def test_at_80_columns_every_limit_shows_its_first_evidence():
    for snapshot in (cpu_step(), launching(), measured(data_ms=4.0), measured()):
        first = ask(snapshot).evidence[0]
        assert first in (await shown(snapshot, 80, 4, framed=False))[0]


async def test_a_levers_gain_is_shown_if_the_evidence_still_fits():
    starved = measured("jpeg_input", data_ms=3.0)
    rows = await shown(starved, 80, 4, framed=False)
    assert rows[0].startswith(" INPUT-BOUND: waits 3.00 of 10.0 ms")
    assert rows[0].rstrip().endswith("x try num_workers=8: +39 to +72 % (A/B)")
    for width, button in (
        (75, "x try num_workers=8: +39 to +72 %"),
        (70, "x try num_workers=8 (A/B)"),
        (62, "x try num_workers=8: +39 to +72 %"),  # the evidence does not fit anyway
        (46, "x try num_workers=8 (A/B)"),
    ):
        narrow = await shown(starved, width, 4, framed=False)
        assert narrow[0].rstrip().endswith(f" {button}")
        assert ("waits 3.00" in narrow[0]) == (width >= 69)
    wide = await shown(starved, 120)
    assert "x try num_workers=8: +39 to +72 % by A/B" in wide[0]


@pytest.mark.parametrize("width", range(20, 121, 7))
async def test_a_range_is_shown_whole_or_not_at_all(width):
    rows = await shown(measured("jpeg_input", data_ms=3.0), width, 8)
    assert not any("+39" in row and "+72 %" not in row for row in rows)


@pytest.mark.parametrize(("size", "framed"), [((80, 4), False), ((120, 6), True), ((160, 6), True)])
async def test_other_jobs_are_named_and_the_proposals_have_a_caution(size, framed):
    waiting = measured("jpeg_input", device=CPU, data_ms=6.0, device_ms=3.0)
    crowded = changed(waiting, host=HostReading(at_s=0.0, values=CROWDED))
    named = changed(crowded, other_jobs=JOBS)
    rows = await shown(named, *size, framed=framed)
    take = "other jobs take 1.2 of 2 cores: end them, or an A/B has a wide interval"
    assert any(take in row for row in rows)
    busiest = "stress (pid 42) uses 0.9 cores, train.py (pid 43) 0.3"
    assert any(busiest in row for row in rows)
    rows = await shown(crowded, *size, framed=framed)
    caution = "other jobs take cores: end them, or an A/B has a wide interval"
    assert "x try" in rows[0]
    assert any(caution in row for row in rows)
    assert any("the training waits for a core 48 % of the time" in row for row in rows)
    assert not any(caution in row for row in await shown(cpu_step(), *size, framed=framed))
    during = changed(named, comparison=comparing().comparison)
    rows = await shown(during, *size, framed=framed, before=ask(cpu_step()))
    assert any(take.replace("an A/B", "the A/B") in row for row in rows)
    ranks = changed(named, ranks=(RankRow(rank=0), RankRow(rank=1)))
    rows = await shown(ranks, *size, framed=framed)
    caution = "too few cores: end other jobs, or an A/B has a wide interval"
    assert any(caution in row for row in rows)
