"""What is on the screen in every state and at every size."""

import asyncio
import math
import threading
import time
from types import SimpleNamespace
from weakref import WeakSet

import pytest
from msgspec.structs import replace as changed

from gpudash.present.cells import clauses_in
from gpudash.protocol.training import Failed, Phase
from gpudash.snapshot import Marker, Snapshot
from gpudash.tui.app import Dashboard
from gpudash.tui.arrangement import LEAST
from gpudash.tui.bars import status
from gpudash.tui.widgets.levers import EFFECTS, LeverPanel
from tests.tui.driving import dashboard, showing, still
from tests.tui.fake_engine import NO_GPU, recording, result, settings, training, with_series
from tests.tui.frames import control_of, painted
from workloads import CATALOGUE

BARS = "▁▂▃▄▅▆▇█"


def drawn(text: str) -> int:
    """How many cells hold a piece of a bar."""
    return sum(character in BARS for character in text)


def of(**values):
    return changed(training(), **values)


def with_step_ms(first=200.0):
    return with_series(training(), step_ms=(first, *training().series.of("step_ms")[1:]))


def late_by(ticks):
    """A run whose last step has not ended for so long."""
    backward_ms = training().series.of("backward_ms")[:-ticks]
    return with_series(training(), backward_ms=backward_ms + (None,) * ticks)


GRAPH = Phase(name="graph", label="graph", lane="train")
NOTED = of(notes=("one: chosen", "two: chosen"))
ODD_MARKERS = tuple(
    Marker(kind="change", at_s=at_s, label=label)
    for at_s, label in
    [(-5.0, "a"), (1e9, "b"), (math.nan, "c"), (5.0, "[red]\x1b[31m"), (29.5, "")]
)  # fmt: skip


@pytest.mark.parametrize(
    ("what", "snapshot", "shown", "hidden"),
    [
        ("before anything runs it says what it waits for",
         Snapshot(workload="encdec", status="importing torch", awaits="torch"),
         ["importing torch", *["waiting for the first step"] * 2, "◌ torch",
          "levers work already", "num_workers"], [*BARS]),
        ("a run in full swing", training(),
         ["· H200 ", "▶ training", "step  12,345", "2,366 samples/s", "296 steps/s", "loss 0.6931",
          "0:00:30", "GPU-BOUND", "88 %", "6.1 of 140.4 GiB", "412 W", "backward 1.3", "GPU busy",
          "┊pipelined=on", *["█"] * 25], ["no GPU is read", "█ gra", "both streams"]),
        ("without a GPU the CPU is shown and a line says why", training(on_gpu=False),
         ["no GPU is read: ", NO_GPU[:30], "CPU-BOUND", "3.8 cores", "CPU cores", "3.1 GiB"],
         ["power", "GPU busy"]),
        ("of a run that had begun before time is since it is watched", of(joined=True),
         ["training watched 0:"], []),
        ("a paused run and its recording",
         of(state="paused", recording=recording("/data/run.csv", 1234)),
         ["‖ paused", "● REC", "run.csv 1,234 rows"], []),
        ("a pending change", of(pending={"batch_size": "64"}), ["8 → 64 …"], []),
        ("and once it is in force", of(settings=settings(batch_size="64")), ["[64]"], ["→ 64"]),
        ("a planned time counts the training and not its start", of(planned_s=5.0),
         ["0:00:00/0:00:05"], []),
        ("of what was trained so far", of(planned_s=5.0, training_s=3.4), ["0:00:03/0:00:05"], []),
        ("phases of a slow step stay between two of its ends", late_by(3), ["█ backward 1.3"], []),
        ("but not for long", late_by(12), [], ["█ backward 1.3"]),
        ("a CUDA graph is a phase of its own",
         changed(with_series(training(), graph_ms=(None,) * 30 + (2.13,) * 30),
                 phases=(*training().phases, GRAPH)), ["█ gra "], []),
        ("notes are clauses of the status line", NOTED, [" · one: chosen · two: chosen"], []),
        ("for a while: they are in the log", changed(NOTED, training_s=60.0, elapsed_s=60.0), [],
         ["chosen"]),
        ("an axis that leaves out a slow first step says so", with_step_ms(), ["↑"], []),
        ("one that leaves out none does not", training(), [], ["↑"]),
        ("before the first point", training(0), ["waiting for the first half second"], []),
        ("the first points", training(1), [], ["waiting for the first half second"]),
        ("markers outside of the chart or with odd text", of(markers=ODD_MARKERS),
         ["[red]␛[31m"], ["\x1b"]),
        ("a training that takes no step for long is not taken for one that hangs",
         of(quiet_s=12.4), ["pipelined=on since 0:00:15 · no step for 12 s"], []),
    ],
)  # fmt: skip
def test_the_screen_shows(what, snapshot, shown, hidden):
    text = still(size=(200, 50), snapshot=snapshot).text()
    for words in shown:
        assert text.count(words) >= shown.count(words), (what, words)
    for words in hidden:
        assert words not in text, (what, words)


@showing(None, size=(200, 50))
async def test_a_failure_is_a_sentence_and_its_traceback_is_in_the_log(d):
    long = "batch_size=900000: " + "needs more memory than there is, " * 5 + "far more."
    d.engine.log("Traceback (most recent call last):", '  File "x.py", line 1', "KeyError: 'a'")
    d.app.main_screen.open_tab("log")
    await d.show(Snapshot(state="failed", status="the worker failed: KeyError 'a'"))
    text = d.text()
    assert "✗ failed" in text
    assert "KeyError 'a' · change a setting and press R to restart" in text
    assert text.count("press R") == 1
    assert "KeyError: 'a'" in text
    assert text.count("nothing measured") == 2
    # a long one leaves room for what to do, and is in the log in full
    d.engine.listener.on_failure(Failed(kind="bad_setting", sentence=long))
    await d.show(Snapshot(state="failed", status=long, gpu_missing="waiting"))
    for size in [(120, 40), (80, 24), (60, 16)]:
        await d.resize(*size)
        assert d.lines()[-2].rstrip().endswith("… · change a setting and press R to restart")
        assert "waiting" not in d.text()
    assert d.app.main_screen.pane.lines["log"][-1] == long


@showing(notifications=True)
async def test_a_notice_hides_neither_status_nor_keys(d):
    await d.show(changed(training(), state="finished"))
    await d.press("space")
    await d.until("nothing is running")
    assert "press R to restart" in d.lines()[-2]
    assert "q quit" in d.lines()[-1]
    assert not any("▌" in line for line in d.lines()[-2:])  # its left border


@showing(changed(training(), workload="own"))
async def test_a_workload_the_catalogue_does_not_know_is_shown_without_levers(d):
    await d.press("p", "plus", "right", "enter", shows="no levers are known")
    assert d.engine.calls_of("change") == []
    assert d.notices()[0].startswith("unknown lever 'batch_size'")


async def test_shrinking_and_growing_again_and_again_too_small_says_so_and_recovers(d):
    sizes = [(20, 5), (59, 40), (200, 50), (120, 15), (1, 1), (80, 24), (46, 3), (61, 17)]
    for size in sizes:
        await d.resize(*size)
        await d.show(training(moved=float(size[0])))
        shown, is_small = " ".join(d.text().split()), size[0] < LEAST[0] or size[1] < LEAST[1]
        assert ("samples/s" in shown) == (not is_small)
        if is_small and size[0] >= 20:
            assert f"terminal too small: {size[0]}×{size[1]}, needs at least" in shown
            assert f"{LEAST[0]}×{LEAST[1]}" in shown
    await d.resize(120, 40)
    assert drawn(d.text()) > 25
    assert "too small" not in d.text()


def levers_of(workload, size, shown):
    """A panel of a workload's levers, and what it shows as the cursor goes through them."""
    control = control_of(Snapshot(workload=workload, state="training", **shown))
    panel = LeverPanel(id="levers")
    panel.show(control.levers.rows(), control.snapshot)
    for _ in control.levers.all:
        rows = painted(panel, size)
        names = [one.name for one in control.levers.all]
        yield panel.chosen, rows, names
        panel.move(1)


@pytest.mark.parametrize("workload", CATALOGUE)
def test_the_cursor_reaches_every_lever_and_says_what_a_change_of_it_costs(workload):
    reached = [*levers_of(workload, (120, 21), {"total_steps": 1})]
    for lever, rows, _ in reached:
        assert f"{lever.name}, {EFFECTS[lever.effect]}: " in " ".join(" ".join(rows).split())
    assert {lever.name for lever, _, _ in reached} == {*reached[0][2]}


def test_the_newest_lever_change_is_named_also_after_a_pause_but_not_after_a_restart():
    def said(*kinds):
        markers = tuple(
            Marker(kind=kind, at_s=float(n), label="batch_size=16" if kind == "change" else kind)
            for n, kind in enumerate(kinds)
        )
        ((sentence, _), _) = status(changed(training(), markers=markers), {})[0].parts
        return sentence

    assert said("change", "asked", "asked") == "batch_size=16 since 0:00:00"
    assert said("change", "restart") == said() == "no lever changed yet"


OUT_OF_MEMORY = (
    "out of memory with batch_size=16384: went back to batch_size=8192; batch 9216 would fit, "
    "10240 would not; most at losses/masked.py:141, 12 GiB of weights"
)


@showing(size=(80, 24), notifications=True)
async def test_a_refusal_is_read_in_whole_and_takes_no_row(d):
    places = [widget.region for widget in d.app.main_screen.children]
    for state in ("training", "paused"):
        notice = f"refused: {OUT_OF_MEMORY}"
        refused = changed(training(), state=state, status=state, notice=notice, refused=True)
        await d.show(refused)
        assert d.notices() == [f"refused: {OUT_OF_MEMORY}"]
        assert "refused: out of memory with batch_size=16384" in d.lines()[-2]
        assert places == [widget.region for widget in d.app.main_screen.children]
        await d.show(changed(refused, total_steps=99_999))
        assert len(d.notices()) == 1
        d.app.clear_notifications()


def test_the_status_line_leaves_out_whole_clauses_and_cuts_no_number():
    said = ("pipelined=on since 0:01:12", "measuring costs 4.65 ms a step, 0.8 %", "a note")
    assert clauses_in(said, 80) == " · ".join(said)
    assert clauses_in(said, 40) == "pipelined=on since 0:01:12 · a note"
    assert clauses_in(said, 22) == "pipelined=on since…"


# ── values that are missing or odd ──────────────────────────────────────────────────────


# ── the log ─────────────────────────────────────────────────────────────────────────────


async def test_hostile_text_is_shown_as_it_is_in_the_log_and_anywhere_else():
    hostile = "\x1b[31m[red]evil\n2"
    snapshot = changed(
        training(),
        status=hostile,
        notes=(hostile,),
        device=changed(training().device, name=hostile),
        gpu_missing=hostile,
        results=(result(1, hostile, 1.0),),
        recording=recording(hostile),
    )
    async with dashboard(size=(200, 50), snapshot=snapshot) as d:
        d.app.main_screen.open_tab("log")
        d.engine.log(
            "[bold red]x[/] [@click=app.leave]y[/]",
            "\x1b[2J\x1b[31mred\x07\rover\x00\x7f",
            "bad \ufffd bytes, \u202eoverride, tab\tbed, wide 漢字",
            "",
            "[/unbalanced",
        )
        await d.settle()
        logged = ("[bold red]x[/] [@click=app.leave]y[/]", "␛[2J␛[31mred␇␍over␀␡", "[/unbalanced")
        d.check(shows=(*logged, "�override"), hides=[*"\x1b\x07\r\x00\x7f\u202e\t"])
        await d.press("g", shows="␛[31m[red]evil", hides="\x1b")


@showing(size=(200, 50))
async def test_the_log_is_bounded_and_cuts_endless_lines(d):
    d.app.main_screen.open_tab("log")
    d.engine.log(*(f"line {n}" for n in range(5000)), "x" * 1_000_000)
    await d.press("z")
    lines = d.app.main_screen.pane.lines["log"]
    assert len(lines) == 2000
    assert sum(map(len, lines)) < 40_000
    assert "996,000 more characters" in d.text()


# ── pace ────────────────────────────────────────────────────────────────────────────────


def taken_by(d, monkeypatch):
    """The steps of the snapshots that a dashboard takes from now on."""
    shown, take = [], d.app.control.take

    def noted(snapshot):
        shown.append(snapshot.total_steps)
        return take(snapshot)

    monkeypatch.setattr(d.app.control, "take", noted)
    return shown


@showing(None)
async def test_the_engine_never_waits_for_a_stuck_screen_which_then_shows_the_newest(
    monkeypatch, d
):
    """Snapshots that come faster than they are painted are dropped and not queued."""
    shown = taken_by(d, monkeypatch)

    def flood():
        for step in range(1, 301):
            d.engine.publish(Snapshot(state="training", workload="encdec", total_steps=step))
            d.engine.log("line")

    thread = threading.Thread(target=flood)
    thread.start()
    thread.join()  # the event loop stands still meanwhile
    await d.settle()
    assert shown == [300]


async def test_a_slow_terminal_gets_the_newest_frame_once_it_has_taken_the_one_before(
    monkeypatch, d
):
    shown = taken_by(d, monkeypatch)
    with monkeypatch.context() as slow:
        slow.setattr(Dashboard, "is_behind", True)
        for steps in (111, 222):
            d.engine.publish(changed(training(), total_steps=steps))
            await d.pilot.pause(0.01)
        assert not shown
    await d.until("222")
    assert shown == [222]


@showing(None, rate_hz=4.0)
async def test_what_arrives_is_painted_however_late_the_loop_is(monkeypatch, d):
    begun = WeakSet()

    def a_minute_late_to_begin():
        task = asyncio.current_task()
        late_s = 60.0 if task in begun else 0.0
        begun.add(task)
        return time.monotonic() + late_s

    clock = SimpleNamespace(get_time=a_minute_late_to_begin)
    monkeypatch.setattr("textual.timer._time", clock)
    for steps in (111, 222):
        await d.show(changed(training(), total_steps=steps))
    await d.until("222")
