"""The answer strip: what it shows at each size, and its buttons."""

import re
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.geometry import Size

from gpudash.diagnosis.causes import table
from gpudash.diagnosis.causes.cause import Limit
from gpudash.diagnosis.headline import Headline
from gpudash.diagnosis.lanes import lane
from gpudash.present.cells import width_of
from gpudash.protocol.answer import Gain, Part, Try
from gpudash.protocol.readings import HostReading, Job, OtherJobs
from gpudash.snapshot import Marker, RankRow, Snapshot
from gpudash.tui.widgets.answer import LIMIT_INKS, AnswerStrip, printed, spread, start_stages
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
from tests.tui.alone import Alone
from tests.tui.comparisons import comparing
from tests.tui.fake_engine import result
from tests.tui.frames import painted, painted_at

JOBS = OtherJobs(
    at_s=0.0,
    used_cores=1.2,
    cores=2,
    busiest=(Job(pid=42, name="stress", cores=0.9), Job(pid=43, name="train.py", cores=0.3)),
)
CROWDED = {"core_wait_pct": 48.0, "cpu_pct": 180.0}
STARTING = Snapshot(status="loading torch", awaits="torch", elapsed_s=1.9, workload="encdec")


@asynccontextmanager
async def running():
    """A strip in an app, for the mouse."""
    app = Alone(AnswerStrip(id="answer"))
    async with app.run_test(size=(120, 7)) as pilot:

        async def click(snapshot, *places, before=None):
            """Show a snapshot, and click on texts of rows, or on columns; return what was run."""
            app.asked.clear()
            app.widget.show(ask(snapshot, before), snapshot)
            for place, y in places:
                shown = app.widget.render_line(y).text
                x = place if isinstance(place, int) else shown.index(place)
                await pilot.click(app.widget, offset=(x, y))
            await pilot.pause()
            return app.asked

        yield click


def shown(snapshot, width, height=7, *, last_s=None, before=None, headline=None):
    """The strip's rows."""
    strip = AnswerStrip(id="answer")
    strip.show(headline or ask(snapshot, before), snapshot, last_s)
    rows = painted(strip, (width, height))
    assert all(cell_len(row) == width for row in rows)
    return rows


@pytest.mark.parametrize("width", [80, 120])
def test_a_limit_is_a_band_in_its_hue_and_its_key_a_cap_and_nothing_else_is_filled(width):
    snapshot, strip = two_streams(), AnswerStrip(id="answer")
    strip.show(ask(snapshot), snapshot)
    rows = painted_at(strip, Size(width, 3), focused=False)
    filled = [[ink for text, ink in row if ink.startswith(("band-", "cap"))] for row in rows]
    assert filled == [["band-rate"], [], ["cap"]]
    assert width_of(rows[0][:1]) == width


def test_every_limit_has_a_hue_for_its_band():
    rows = (one for name, one in vars(table).items() if not name.startswith("_"))
    limits = {one for row in rows for one in (row if type(row) is tuple else (row,))
              if isinstance(one, Limit)}  # fmt: skip
    assert {one.word for one in limits} - LIMIT_INKS.keys() == {"none", "unknown"}


UNTRIED = "nothing foreseen; untried: precision, channels_last   a tries one, T tries all"
FOUND = ask(two_streams())


@pytest.mark.parametrize(
    ("what", "snapshot", "headline", "said", "hidden"),
    [
        ("what nothing is known of is not proposed", cpu_step(), None, UNTRIED, "TRY"),
        ("a proven answer says so", two_streams(),
         changed(FOUND, answer=changed(FOUND.answer, is_proven=True)), "✓ proven by slowing it",
         "\n"),
        ("a start of a run without levers promises none", changed(STARTING, can=()), None,
         "starting", "levers"),
    ],
)  # fmt: skip
def test_the_strip(what, snapshot, headline, said, hidden):
    text = "".join(shown(snapshot, 120, headline=headline))
    assert said in text, what
    assert hidden not in text, what


@pytest.mark.parametrize("snapshot", [two_streams(), gpu_step(), cpu_step(), STARTING, Snapshot()])
@pytest.mark.parametrize("size", [(1, 1), (4, 3), (20, 5), (40, 6), (400, 20)])
def test_any_size_is_painted(snapshot, size):
    assert len(shown(snapshot, *size)) == size[1]


def test_while_measuring_the_strip_names_row_and_neighbours_and_how_long_it_takes():
    rows = (result(1, "pipelined=off", 300.0), result(2, "pipelined=on", 0.1, live=True))
    on_cpu = changed(cpu_step(), steps_since_break=3, steps_per_s=2.0, results=rows)
    seen = shown(on_cpu, 120)
    assert re.search(r"measuring … 3 of at most 20 steps, about \d+ s more", seen[0])
    assert "setting 2: pipelined=on" in "".join(seen)
    assert seen[2].startswith("▌ x has a proposal then")
    waited = changed(on_cpu.series, values={**on_cpu.series.values, "core_wait_pct": (48.0,)})
    crowded = shown(changed(on_cpu, series=waited, other_jobs=JOBS), 120)
    assert "other jobs take 1.2 of 2 cores" in "".join(crowded[:2])


def test_what_has_ended_says_what_was_foreseen():
    tried = Try("compile", "on", "fewer kernels", "off", Gain(10.0, 12.0, "2 of 8 ms"))
    for tries, said in (
        ((tried,), "next: compile off → on: +10 to +12 %"),
        ((), "nothing foreseen"),
    ):
        found = ask(changed(cpu_step(), state="finished"))
        ended = changed(found, answer=changed(found.answer, tries=tries))
        row = shown(cpu_step(), 120, headline=ended)[2]
        assert row.rstrip() == f"▌ {said}; x needs a running training"


@pytest.mark.parametrize(
    ("snapshot", "now"),
    [
        (Snapshot(), "process"),
        (STARTING, "torch"),
        (changed(STARTING, awaits="model"), "model"),
        (changed(STARTING, state="training", status=""), "first training step"),
    ],
)
def test_a_start_shows_the_stage_that_goes_on(snapshot, now):
    going = [stage for stage in start_stages(snapshot) if stage.startswith("◌")]
    assert len(going) == 1
    assert going[0].startswith(f"◌ {now}")


def test_a_restart_counts_its_own_seconds():
    again = changed(
        STARTING, elapsed_s=60.0, markers=(Marker(kind="restart", at_s=57.0, label="restart"),)
    )
    assert "◌ torch 3 s …" in start_stages(again)


def test_of_two_trainings_the_start_of_one_has_no_seconds_of_both():
    both = changed(STARTING, elapsed_s=60.0, comparison=comparing(lever="version").comparison)
    assert "◌ torch …" in start_stages(both)


async def test_its_keys_are_buttons():
    async with running() as click:
        ran = await click(two_streams(), ("TRY", 2), (3, 0), (3, 4))
        assert ran == ["try_it", "why", "why"]
        assert await click(comparing(12), (4, 2), before=ask(gpu_step())) == ["compare"]
        assert await click(STARTING, (79, 2)) == []  # there is nothing to try


def test_the_same_answer_is_painted_once(monkeypatch):
    strip, repainted = AnswerStrip(id="answer"), []
    strip.show(ask(two_streams()), two_streams())
    monkeypatch.setattr(strip, "repaint", lambda: repainted.append(1))
    strip.show(ask(two_streams()), two_streams())
    assert repainted == []
    strip.show(Headline(kind="paused", title="paused"), two_streams())
    assert repainted == [1]


@given(
    st.lists(st.floats(-1e18, 1e5), max_size=6),
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


def test_at_80_columns_every_limit_shows_its_first_evidence():
    for snapshot in (cpu_step(), launching(), measured(data_ms=4.0), measured()):
        first = ask(snapshot).evidence[0]
        rows = shown(snapshot, 80)
        assert any(first in row for row in rows[:2])


def test_what_a_proposal_takes_gives_way_to_its_gain():
    starved = measured("jpeg_input", data_ms=3.0)
    told = "TRY num_workers 4 → 8   +39 to +72 %"
    for width, says in (
        (92, f"{told}   about 30 s, undone afterwards"),
        (82, f"{told}   about 30 s"),
        (50, told),
    ):
        assert says in shown(starved, width)[2]
    assert "+39" not in (shown(starved, 36))[2]


def test_a_range_is_shown_whole_or_not_at_all():
    for width in range(20, 121, 7):
        rows = shown(measured("jpeg_input", data_ms=3.0), width, 8)
        assert not any("+39" in row and "+72 %" not in row for row in rows)


@pytest.mark.parametrize("width", [80, 120, 160])
def test_on_a_machine_too_busy_for_proof_that_is_said_behind_the_proposal(width):
    waiting = measured("jpeg_input", device=CPU, data_ms=6.0, device_ms=3.0)
    crowded = changed(waiting, host=HostReading(at_s=0.0, values=CROWDED))
    named = changed(crowded, other_jobs=JOBS)
    rows = shown(named, width)
    take = "other jobs take 1.2 of 2 cores"
    assert rows[2].startswith("▌  x  TRY input baseline → tensor_decode")
    assert f"   {take}{': it waits until they end' * (width > 80)}  " in rows[2]
    assert "   other jobs take cores" in shown(crowded, width)[2]
    assert any("the training lacks 48 % of the core time it asks for" in row for row in rows)
    assert not any("until they end" in row for row in shown(cpu_step(), width))
    lately = changed(named.series, values={"core_wait_pct": (48.0,)})
    during = changed(named, series=lately, comparison=comparing().comparison)
    rows = shown(during, 160, before=ask(cpu_step()))
    assert any(f"{take}: until they end, the A/B has a wide interval" in row for row in rows)
    rows = shown(during, 70, before=ask(cpu_step()))
    assert rows[2].rstrip().endswith("other jobs take 1.2 of 2 cores")  # the reason, whole
    proven = Try("num_workers", "4", "", "0", Gain(20.9, 30.0, how="measured"))
    found = changed(ask(named), tries=(proven,))
    rows = shown(named, width, headline=found)  # `x` sets it at once
    assert "SET num_workers 0 → 4   +21 to +30 %   proven here  " in rows[2]
    ranks = changed(named, ranks=(RankRow(rank=0), RankRow(rank=1)))
    rows = shown(ranks, width)
    assert "   too few cores" in rows[2]
